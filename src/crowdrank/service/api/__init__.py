"""HTTP API of the judging service."""

from crowdrank.service.api.app import create_app
from crowdrank.service.api.settings import Settings

__all__ = ["Settings", "create_app"]
