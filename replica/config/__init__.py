"""The configuration of a replica: a file, variables and flags, checked before anything starts."""

from replica.config.load import SETTINGS, ConfigError, Setting, load_config
from replica.config.model import Config

__all__ = ["SETTINGS", "Config", "ConfigError", "Setting", "load_config"]
