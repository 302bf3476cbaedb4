import type { IRouter, Request } from 'express';
import type { Catalog } from '../catalog/catalog.ts';
import type { SessionRow } from '../catalog/schema.ts';
import { hashOf } from '../hash.ts';
import { newId } from '../log/ids.ts';
import type { Subject } from '../log/records.ts';
import { subjectToWire } from '../wire/project.ts';
import { cancelBody, createSessionBody, type CreateSessionBody, type SessionResource } from '../wire/resources.ts';
import { agentNotFound, checkAgent } from './agents.ts';
import type { ApiContext } from './context.ts';
import { ApiError, isRefusal } from './errors.ts';
import { claimRequest, idempotencyKey } from './idempotency.ts';
import { isId } from './ids.ts';
import { contextOf, param, parseBody } from './request.ts';
import { route } from './routes.ts';

const MAX_METADATA_BYTES = 4096;

/** `/v1/agents/sessions`: conversations with registered agents. */
export function sessionRoutes(router: IRouter, context: ApiContext): void {
  const { catalog, agentCheck, commands } = context;

  route(router, '/v1/agents/sessions', {
    post: async (request, response) => {
      const { subject } = contextOf(response);
      const key = idempotencyKey(request);
      const body = parseBody(createSessionBody, request);
      const metadata = metadataOf(request);
      const wanted = { id: newId('ses'), body, metadata, subject };
      const id = key === undefined ? await createSession(wanted) : await createOnce(key, wanted);
      response.status(201).json({ data: sessionResource(await ownSession(catalog, id, subject)) });
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

  /** The session that the first request with this key has created. */
  async function createOnce(key: string, wanted: WantedSession): Promise<string> {
    const { body, metadata, subject } = wanted;
    const scope = `${subject.subjectId}/sessions`;
    const bodyHash = hashOf([body, metadata]);
    const claim = await claimRequest({ catalog, scope, key, bodyHash, resourceId: wanted.id });
    const id = claim.resourceId;
    if (!claim.isNew && (await catalog.sessions.get(id))) return id;
    try {
      return await createSession({ ...wanted, id });
    } catch (error) {
      if (isRefusal(error)) await claim.release();
      throw error;
    }
  }

  async function createSession({ id, body, metadata, subject }: WantedSession): Promise<string> {
    const agent = await catalog.agents.get(body.agent_name);
    if (!agent) throw agentNotFound(body.agent_name);
    await checkAgent(agent.spec, agentCheck, 'agent.');
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
    return id;
  }
}

interface WantedSession {
  id: string;
  body: CreateSessionBody;
  metadata: string | null;
  subject: Subject;
}

/** A session of this subject; other people's sessions do not exist. @throws ApiError `session_not_found` */
export async function ownSession(catalog: Catalog, id: string, subject: Subject): Promise<SessionRow> {
  const session = isId(id) ? await catalog.sessions.get(id) : undefined;
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
  // Node gives each byte of a header as one character, whatever it stands for.
  const metadata = parseMetadata(Buffer.from(header, 'latin1'));
  if (typeof metadata === 'object' && metadata !== null && !Array.isArray(metadata)) return JSON.stringify(metadata);
  throw new ApiError('invalid_request', 'x-tfy-metadata must be a JSON object of at most 4 KiB in UTF-8', {
    param: 'x-tfy-metadata',
  });
}

function parseMetadata(bytes: Buffer): unknown {
  if (bytes.length > MAX_METADATA_BYTES) return undefined;
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    return undefined;
  }
}
