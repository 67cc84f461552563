"""Logs of a running worker on standard error: lines for people, or one JSON object a line for collectors.

What pushlink logs names attempts, codes and errors by type; no record, body, header or secret is ever put into a log.
"""

from __future__ import annotations

import logging
import sys
from enum import StrEnum

import structlog


class LogFormat(StrEnum):
    """How a line looks."""

    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """From which level on."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def set_up_logs(shape: LogFormat, level: LogLevel) -> structlog.stdlib.BoundLogger:
    """Send this process's logs to standard error; answers with a logger for the surface itself."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if shape is LogFormat.JSON
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    final: list[structlog.typing.Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    final += [structlog.processors.format_exc_info] if shape is LogFormat.JSON else []
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[*final, renderer]))
    root = logging.getLogger("pushlink")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(level.upper())
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    logger: structlog.stdlib.BoundLogger = structlog.get_logger("pushlink.cli")
    return logger
