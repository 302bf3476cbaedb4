import type { IRouter, Request } from 'express';
import type { Catalog } from '../catalog/catalog.ts';
import type { SessionRow } from '../catalog/schema.ts';
import { hashOf } from '../hash.ts';
import { newId } from '../log/ids.ts';
import type { Subject } from '../log/records.ts';
import { subjectToWire } from '../wire/project.ts';
import { cancelBody, createSessionBody, type SessionResource } from '../wire/resources.ts';
import { agentNotFound, checkAgent } from './agents.ts';
import type { ApiContext } from './context.ts';
import { ApiError } from './errors.ts';
import { claimKey, idempotencyKey } from './idempotency.ts';
import { contextOf, param, parseBody } from './request.ts';
import { route } from './routes.ts';

const MAX_METADATA_BYTES = 4096;

/** `/v1/agents/sessions`: conversations with registered agents. */
export function sessionRoutes(router: IRouter, context: ApiContext): void {
  const { catalog, agentCheck, commands } = context;

  route(router, '/v1/agents/sessions', {
    post: async (request, response) => {
      const { subject } = contextOf(response);
      const body = parseBody(createSessionBody, request);
      const metadata = metadataOf(request);
      const agent = await catalog.agents.get(body.agent_name);
      if (!agent) throw agentNotFound(body.agent_name);
      await checkAgent(agent.spec, agentCheck, 'agent.');
      const id = await claimKey({
        catalog,
        scope: `${subject.subjectId}/sessions`,
        key: idempotencyKey(request),
        bodyHash: hashOf([body, metadata]),
        newId: () => newId('ses'),
      });
      const now = new Date().toISOString();
      await catalog.sessions.insert({
        id,
        type: 'session',
        agent_name: agent.name,
        agent_version: agent.version,
        spec_hash: agent.spec_hash,
        title: body.title || null,
        ...ownerColumns(subject),
        metadata,
        created_at: now,
        updated_at: now,
      });
      const session = await ownSession(catalog, id, subject);
      response.status(201).json({ data: sessionResource(session) });
    },
  });

  route(router, '/v1/agents/sessions/:sid', {
    get: async (request, response) => {
      const session = await ownSession(catalog, param(request, 'sid'), contextOf(response).subject);
      if (session.type !== 'session') throw sessionNotFound(session.id);
      response.json({ data: sessionResource(session) });
    },
  });

  route(router, '/v1/agents/sessions/:sid/cancel', {
    post: async (request, response) => {
      const session = await ownSession(catalog, param(request, 'sid'), contextOf(response).subject);
      const close = parseBody(cancelBody, request).close === true;
      // First here, so that a session that is rebuilt in between is closed too.
      if (close) await catalog.sessions.close(session.id);
      await commands.cancel(session.id, { close });
      response.json({});
    },
  });
}

/** A session of this subject; other people's sessions do not exist. @throws ApiError `session_not_found` */
export async function ownSession(catalog: Catalog, id: string, subject: Subject): Promise<SessionRow> {
  const session = await catalog.sessions.get(id);
  if (!session || session.subject_id !== subject.subjectId) throw sessionNotFound(id);
  return session;
}

export function sessionNotFound(id: string): ApiError {
  return new ApiError('session_not_found', `there is no session ${JSON.stringify(id)}`);
}

export function ownerColumns({ subjectId, subjectType, subjectSlug }: Subject) {
  return { subject_id: subjectId, subject_type: subjectType, subject_slug: subjectSlug };
}

/** The fields that sessions and drafts share. */
export function commonFields(session: SessionRow) {
  const { id, title, created_at, updated_at, metadata } = session;
  const owner = subjectToWire({
    subjectId: session.subject_id,
    subjectType: session.subject_type,
    subjectSlug: session.subject_slug,
  });
  return {
    id,
    title,
    created_by_subject: owner,
    created_at,
    updated_at,
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- validated before it was stored
    ...(metadata !== null && { metadata: JSON.parse(metadata) as Record<string, unknown> }),
  };
}

function sessionResource(session: SessionRow): SessionResource {
  const { agent_name: agentName, agent_version: agentVersion } = session;
  return { type: 'session', ...commonFields(session), agent_name: agentName ?? '', agent_version: agentVersion ?? 0 };
}

/** The header `x-tfy-metadata`, as the JSON text that is stored. */
export function metadataOf(request: Request): string | null {
  const header = request.get('x-tfy-metadata');
  if (!header) return null;
  const problem = new ApiError('invalid_request', 'x-tfy-metadata must be a JSON object of at most 4 KiB', {
    param: 'x-tfy-metadata',
  });
  if (Buffer.byteLength(header) > MAX_METADATA_BYTES) throw problem;
  let metadata: unknown;
  try {
    metadata = JSON.parse(header);
  } catch {
    throw problem;
  }
  if (typeof metadata !== 'object' || metadata === null || Array.isArray(metadata)) throw problem;
  return JSON.stringify(metadata);
}
