"""ServiceClient: every call of the API, typed; outages and refusals as errors of their own."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from graphcache_client.breaker import CircuitBreaker
from graphcache_client.downloads import fetch_rest
from graphcache_client.errors import ServiceUnavailable
from graphcache_client.identity import default_holder, new_owner
from graphcache_client.sending import CONNECT_S, Sending, timeout
from graphcache_client.uploads import upload_file
from graphcache_wire import (
    ClaimRequest,
    ClaimResponse,
    CompleteRequest,
    CompleteResponse,
    FailRequest,
    FailResponse,
    GraphKey,
    HeartbeatRequest,
    HeartbeatResponse,
    Lease,
    ManifestRequest,
    ManifestStatus,
    Outcome,
    ReleaseRequest,
    ResolveManyRequest,
    ResolveManyResponse,
    ResolveRequest,
    Stats,
    UsageRequest,
    routes,
)
from graphcache_wire.graphs import ExplainRequest, Explanation, GraphDetail, GraphPage, ReportRequest, ReportResponse
from graphcache_wire.stats import UsageResponse

ANSWER_S = 20.0
"""How long an answer may take beyond the time that the request asked to be held."""
STALL_S = 60.0
"""How long a transfer may stand still."""

Answer = TypeVar("Answer")
_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)


class ServiceClient:
    """Speaks to one service. Every call is safe to repeat, and is repeated on a broken connection.

    Args:
        url: such as ``http://cache:8750``.
        token: sent as a bearer token; shown in no repr, log or error.
        owner: this process's random id; all leases that it takes belong to it.
        holder: its name for people.

    Every method raises ``ServiceUnavailable`` when the service cannot be reached or cannot answer now, and
    ``RequestRefused`` when it says no. Safe to use from several threads.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        owner: str | None = None,
        holder: str | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.owner = owner or new_owner()
        self.holder = holder or default_holder()
        self._sending = Sending(self.url, sleep=sleep, breaker=breaker or CircuitBreaker())
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=16),
            follow_redirects=False,
            transport=transport,
        )

    def resolve(self, request: ResolveRequest, *, deadline: float | None = None) -> Outcome:
        """Ask for a graph. No try outlasts ``deadline`` (``time.monotonic``), though the network swallows packets."""
        return self._post(routes.RESOLVE, request, _OUTCOME.validate_json, held_s=request.wait_s, deadline=deadline)

    def resolve_many(self, request: ResolveManyRequest) -> ResolveManyResponse:
        return self._post(routes.RESOLVE_MANY, request, ResolveManyResponse.model_validate_json)

    def claim(self, request: ClaimRequest) -> ClaimResponse:
        return self._post(routes.CLAIM, request, ClaimResponse.model_validate_json, held_s=request.wait_s)

    def heartbeat(self, compile_id: str, request: HeartbeatRequest) -> HeartbeatResponse:
        path = routes.HEARTBEAT.format(compile_id=compile_id)
        return self._post(path, request, HeartbeatResponse.model_validate_json)

    def complete(self, compile_id: str, request: CompleteRequest) -> CompleteResponse:
        path = routes.COMPLETE.format(compile_id=compile_id)
        return self._post(path, request, CompleteResponse.model_validate_json)

    def fail(self, compile_id: str, request: FailRequest) -> FailResponse:
        return self._post(routes.FAIL.format(compile_id=compile_id), request, FailResponse.model_validate_json)

    def release(self, compile_id: str, request: ReleaseRequest) -> None:
        self._post(routes.RELEASE.format(compile_id=compile_id), request, bytes)

    def create_manifest(self, request: ManifestRequest) -> ManifestStatus:
        return self._post(routes.MANIFESTS, request, ManifestStatus.model_validate_json)

    def manifest(self, manifest_id: str) -> ManifestStatus:
        return self._get(routes.MANIFEST.format(manifest_id=manifest_id), ManifestStatus.model_validate_json)

    def stats(self, *, since: str | None = None, group_by: str | None = None) -> Stats:
        given = {"since": since, "group_by": group_by}
        params = {name: value for name, value in given.items() if value is not None}
        return self._get(routes.STATS, Stats.model_validate_json, params)

    def usage(self, request: UsageRequest) -> UsageResponse:
        return self._post(routes.USAGE, request, UsageResponse.model_validate_json)

    def graphs(self, **filters: str) -> GraphPage:
        return self._get(routes.GRAPHS, GraphPage.model_validate_json, filters)

    def graph(self, key_digest: str) -> GraphDetail:
        return self._get(routes.GRAPH.format(key_digest=key_digest), GraphDetail.model_validate_json)

    def explain(self, key: GraphKey) -> Explanation:
        return self._post(routes.EXPLAIN, ExplainRequest(key=key), Explanation.model_validate_json)

    def report(self, key_digest: str, request: ReportRequest) -> ReportResponse:
        path = routes.GRAPH_REPORT.format(key_digest=key_digest)
        return self._post(path, request, ReportResponse.model_validate_json)

    def answered_since(self, moment: float) -> bool:
        """Whether the service gave any answer that is no outage after ``moment`` (``time.monotonic``)."""
        return self._sending.answered_since(moment)

    def healthy(self) -> bool:
        """Whether the service answers that it is alive; never raises for an outage."""
        try:
            return self._http.get(routes.HEALTHZ).status_code == 200
        except httpx.HTTPError:
            return False

    def upload(self, path: Path, digest: str, size_bytes: int, lease: Lease) -> None:
        """Send a file under a lease; a blob that is stored already ends it early.

        Raises:
            LeaseLost: the lease is no longer this owner's.
        """
        params = {routes.COMPILE_ID_PARAMETER: lease.compile_id, routes.GENERATION_PARAMETER: str(lease.generation)}
        url = routes.BLOB.format(digest=digest)

        def put(body: Callable[[], Iterator[bytes]], headers: dict[str, str]) -> httpx.Response:
            headers = headers | {"Content-Type": "application/octet-stream"}
            wait = timeout(STALL_S, None)
            return self._sending.call(
                lambda: self._http.put(url, params=params, content=body(), headers=headers, timeout=wait)
            )

        upload_file(put, path, size_bytes)

    def download(self, digest: str, size_bytes: int, into: Path, *, deadline: float | None = None) -> None:
        """Fetch a blob into a file, going on where a broken connection left it. The caller checks the digest.

        Raises:
            RequestRefused: with code not_found where the bytes are gone.
        """
        into.touch()
        path = routes.BLOB.format(digest=digest)
        self._sending.call(
            lambda: fetch_rest(self._http, path, digest, size_bytes, into, timeout(STALL_S, deadline)), deadline
        )

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ServiceClient(url={self.url!r}, holder={self.holder!r})"

    def _post(
        self,
        path: str,
        body: BaseModel,
        parse: Callable[[bytes], Answer],
        *,
        held_s: float = 0.0,
        deadline: float | None = None,
    ) -> Answer:
        content = body.model_dump_json()
        headers = {"Content-Type": "application/json"}

        def send() -> httpx.Response:
            wait = timeout(held_s + ANSWER_S, deadline)
            return self._http.post(path, content=content, headers=headers, timeout=wait)

        return self._parsed(self._sending.call(send, deadline), parse)

    def _get(self, path: str, parse: Callable[[bytes], Answer], params: dict[str, Any] | None = None) -> Answer:
        return self._parsed(self._sending.call(lambda: self._http.get(path, params=params)), parse)

    def _parsed(self, answer: httpx.Response, parse: Callable[[bytes], Answer]) -> Answer:
        try:
            return parse(answer.content)
        except ValidationError as error:
            raise ServiceUnavailable(
                f"{self.url} answered {answer.url.path} with something that is no answer of graphcache "
                f"({error.error_count()} faults): is this URL the service's, and of the same version?"
            ) from error
