"""A Hugging Face Hub on 127.0.0.1 that serves folders: enough of its API to list and download, and to refuse."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class FakeHub:
    """Serves ``repos[repo_id][revision] = (commit, folder)``; repositories in ``gated`` are refused.

    ``requested`` collects ``(method, path)`` of each request.
    """

    def __init__(self):
        self.repos: dict[str, dict[str, tuple[str, Path]]] = {}
        self.gated: set[str] = set()
        self.requested: list[tuple[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> FakeHub:
        self._thread.start()
        return self

    def __exit__(self, *exc_info) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, repo_id: str, revision: str, folder: Path) -> str:
        """Add a repository's revision; return its commit, by which it can be asked for as well."""
        commit = hashlib.sha1(f"{repo_id}@{revision}".encode()).hexdigest()
        revisions = self.repos.setdefault(repo_id, {})
        revisions[revision] = revisions[commit] = (commit, folder)
        return commit

    def downloaded(self) -> set[str]:
        """The names of the files whose contents were sent."""
        paths = [re.search(r"/resolve/[^/]+/(.+)$", path) for method, path in self.requested if method == "GET"]
        return {unquote(match[1]) for match in paths if match}


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(send_body=True)

    def do_HEAD(self) -> None:
        self._answer(send_body=False)

    def log_message(self, *args) -> None:
        pass

    def _answer(self, send_body: bool) -> None:
        path = urlsplit(self.path).path
        self.hub.requested.append((self.command, path))
        info = re.fullmatch(r"/api/models/(.+?)(?:/(revision|tree)/([^/]+)(?:/.*)?)?", path)
        content = re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path)
        if not (info or content):
            return self._refuse(404, "EntryNotFound")
        repo_id = (info or content)[1]
        revision = unquote((info[3] if info else content[2]) or "main")
        if repo_id in self.hub.gated:
            return self._refuse(403, "GatedRepo")
        if repo_id not in self.hub.repos:
            return self._refuse(401, "RepoNotFound")
        if revision not in self.hub.repos[repo_id]:
            return self._refuse(404, "RevisionNotFound")
        commit, folder = self.hub.repos[repo_id][revision]
        if info:
            return self._describe(repo_id, commit, folder, tree=info[2] == "tree")
        return self._send_file(folder / unquote(content[3]), commit, send_body)

    def _describe(self, repo_id: str, commit: str, folder: Path, tree: bool) -> None:
        files = sorted(item for item in folder.rglob("*") if item.is_file())
        names = [str(item.relative_to(folder)) for item in files]
        if tree:
            rows = [
                {"type": "file", "path": name, "size": item.stat().st_size, "oid": _etag(item)}
                for name, item in zip(names, files, strict=True)
            ]
            return self._send(200, json.dumps(rows).encode(), {"Content-Type": "application/json"})
        body = {"id": repo_id, "modelId": repo_id, "sha": commit, "siblings": [{"rfilename": name} for name in names]}
        return self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _send_file(self, file: Path, commit: str, send_body: bool) -> None:
        if not file.is_file():
            return self._refuse(404, "EntryNotFound")
        body = file.read_bytes()
        headers = {"ETag": f'"{_etag(file)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        status = 200
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if span:
            first, last = int(span[1]), min(int(span[2] or len(body) - 1), len(body) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
            body, status = body[first : last + 1], 206
        return self._send(status, body, headers, send_body)

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"", {"X-Error-Code": code, "X-Error-Message": code})

    def _send(self, status: int, body: bytes, headers: dict[str, str], send_body: bool = True) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if send_body and self.command != "HEAD":
            self.wfile.write(body)


def _etag(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()
