"""Strategy plugins that train on weighted memories."""

from avalanche_gmc.plugins.gdumb import CoresetGDumbPlugin
from avalanche_gmc.plugins.replay import CoresetReplayPlugin

__all__ = ["CoresetGDumbPlugin", "CoresetReplayPlugin"]
