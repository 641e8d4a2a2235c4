"""Chat completions on the loopback interface, with the faults of real services, and a bill."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """What the endpoint does with a request.

    Attributes:
        content: text of the model; None sends `raw` instead of a chat completion.
        code: HTTP code.
        headers: further headers.
        raw: body of the reply if there is no content.
        fields: further fields of the choice, such as logprobs or finish_reason.
        message: further fields of the message, such as refusal.
        usage: whether the reply states the numbers of tokens.
        seconds: time before the reply.
        cut: "before" or "within": close the connection instead of sending all of the reply.

    """

    content: str | None = '{"grade": "1"}'
    code: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    message: dict[str, Any] = field(default_factory=dict)
    usage: bool = True
    seconds: float = 0.0
    cut: str = ""


def error(code: int, message: str = "broken", error_code: str = "", **more: Any) -> Reply:
    """Return an error of the service."""
    raw = json.dumps({"error": {"message": message, "code": error_code or None}})
    return Reply(None, code, raw=raw, **more)


Behavior = Callable[[int, dict[str, Any]], Reply]
"""Function of the number of a request, from 0, and its body."""
OUTPUT_TOKENS = 10


@dataclass
class FakeEndpoint:
    """State of the endpoint: what it received, and what it billed in tokens; replies wait until `gate` is set."""

    behavior: Behavior
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0
    running: int = 0
    most_running: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    gate: threading.Event = field(default_factory=threading.Event)

    def receive(self, body: dict[str, Any], headers: dict[str, str]) -> Reply:
        """Record a request, decide on the reply, and bill it if the model answers."""
        with self.lock:
            number = len(self.bodies)
            self.bodies.append(body)
            self.headers.append(headers)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            reply = self.behavior(number, body)
            if reply.content is not None:
                self.input_tokens += input_tokens(body)
                self.output_tokens += OUTPUT_TOKENS
        return reply

    def cost(self, input_price: float, output_price: float) -> float:
        """Return what the endpoint billed, for prices per million tokens."""
        return (self.input_tokens * input_price + self.output_tokens * output_price) / 1e6

    def documents(self) -> list[str]:
        """Return the text of the document in each request."""
        return [document_of(body) for body in self.bodies]


def input_tokens(body: dict[str, Any]) -> int:
    """Return the tokens that the endpoint bills for a request: many, one for every two bytes."""
    return sum(len(message["content"]) for message in body["messages"]) // 2


def document_of(body: dict[str, Any]) -> str:
    """Return the text of the document in a request."""
    content = body["messages"][-1]["content"]
    return str(content.split("BEGIN DOCUMENT ")[1].split("\n", 1)[1].split("\nEND DOCUMENT")[0])


def completion(body: dict[str, Any], reply: Reply) -> str:
    """Return a chat completion as JSON."""
    message = {"role": "assistant", "content": reply.content, **reply.message}
    choice = {"index": 0, "message": message, "finish_reason": "stop", **reply.fields}
    usage = {"prompt_tokens": input_tokens(body), "completion_tokens": OUTPUT_TOKENS}
    document = {
        "id": "x",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "served",
        "choices": [choice],
    }
    return json.dumps(document | ({"usage": usage} if reply.usage else {}))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    endpoint: FakeEndpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.path == "/v1/chat/completions"
        reply = self.endpoint.receive(body, {name.lower(): value for name, value in self.headers.items()})
        try:
            self.endpoint.gate.wait()
            time.sleep(reply.seconds)
            self._send(body, reply)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with self.endpoint.lock:
                self.endpoint.running -= 1

    def _send(self, body: dict[str, Any], reply: Reply) -> None:
        if reply.cut == "before":
            self.close_connection = True
            return
        content = (reply.raw if reply.content is None else completion(body, reply)).encode()
        self.send_response(reply.code)
        for name, value in {"content-type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if reply.cut else content)
        self.close_connection = bool(reply.cut)

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def serve(behavior: Behavior) -> Iterator[FakeEndpoint]:
    """Serve an endpoint on a free port of the loopback interface."""
    endpoint = FakeEndpoint(behavior)
    endpoint.gate.set()
    handler = type("Handler", (_Handler,), {"endpoint": endpoint})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield endpoint
        finally:
            server.shutdown()
            thread.join()
