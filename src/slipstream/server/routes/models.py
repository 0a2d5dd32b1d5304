"""GET /v1/models and /v1/models/{model}."""

from __future__ import annotations

from fastapi import APIRouter, Response

from slipstream.server.protocol.responses import Model, ModelEngine, ModelList
from slipstream.server.routes.context import ServerContext, json_response
from slipstream.wire.messages import EngineFacts


def models_router(context: ServerContext) -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    def served() -> Model:
        facts = context.llm.facts
        return Model(
            id=context.llm.model_name,
            created=context.started,
            root=context.llm.model_name,
            max_model_len=None if facts is None else facts.max_model_len,
            engine=None if facts is None else _engine_of(facts),
        )

    @router.get("/v1/models")
    async def list_models() -> Response:
        return json_response(ModelList(data=[served()]))

    @router.get("/v1/models/{model:path}")
    async def get_model(model: str) -> Response:
        context.check_model(model)
        return json_response(served())

    return router


def _engine_of(facts: EngineFacts) -> ModelEngine:
    return ModelEngine(
        device=facts.device,
        dtype=facts.dtype,
        drafter=facts.drafter,
        draft_len=facts.draft_len,
        verification=facts.verification,
    )
