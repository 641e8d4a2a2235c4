"""Errors of the judging service, each with its HTTP status."""

from __future__ import annotations

from crowdrank.errors import CrowdrankError


class ServiceError(CrowdrankError):
    """Base of the errors that a request to the service can cause.

    Attributes:
        client_id: the answer that cannot be stored, if that is the problem.

    """

    default_kind = "service"
    status = 500
    client_id: str | None = None


class Unauthorized(ServiceError):  # noqa: N818
    """The request needs a valid session or token."""

    default_kind = "unauthorized"
    status = 401


class Forbidden(ServiceError):  # noqa: N818
    """The assessor may not do this."""

    default_kind = "forbidden"
    status = 403


class NotFound(ServiceError):  # noqa: N818
    """The thing does not exist, or belongs to a project of others."""

    default_kind = "not-found"
    status = 404


class Conflict(ServiceError):  # noqa: N818
    """The request contradicts what is stored."""

    default_kind = "conflict"
    status = 409


class Invalid(ServiceError):  # noqa: N818
    """A value of the request is invalid."""

    default_kind = "invalid"
    status = 422


class Unavailable(ServiceError):  # noqa: N818
    """The service cannot do this at the moment."""

    default_kind = "unavailable"
    status = 503


class TooManyAttempts(ServiceError):  # noqa: N818
    """The client must wait before the next attempt."""

    default_kind = "too-many-attempts"
    status = 429
