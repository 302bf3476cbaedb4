import { posix } from 'node:path';
import { z } from 'zod';
import { mayOnSession } from '../../auth/rights.ts';
import { BlobNotFound } from '../../blobs/blob-store.ts';
import { isId } from '../../core/ids.ts';
import { ROOT_THREAD } from '../../core/records/threads.ts';
import type { Caller } from '../../core/subject.ts';
import { authorizeSession, requireRight } from '../../engine/access.ts';
import { interruptCell, runsCode } from '../../engine/interrupt-cell.ts';
import { byKey } from '../../engine/request-claims.ts';
import { resetKernel } from '../../features/code/reset-kernel.ts';
import { sandboxState } from '../../features/code/sandbox-state.ts';
import { mediaTypeByName } from '../../features/code/workspace/media-type.ts';
import type { StoredItem } from '../../features/code/workspace/stored-tree.ts';
import { StoredWorkspaces } from '../../features/code/workspace/stored-workspace.ts';
import { workspaceListOf } from '../../features/code/workspace/workspace-list.ts';
import { WorkspaceFileError } from '../../features/code/workspace/workspace-path.ts';
import { sha256 } from '../../lib/hash.ts';
import { identifier } from '../../spec/bounds.ts';
import { codeActionsOf } from '../../spec/code-actions.ts';
import { WORKSPACE, WORKSPACE_PATH_RULE } from '../../spec/workspace-path.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError, ERRORS, type ErrorKind } from '../http/errors.ts';
import { idempotencyKey } from '../http/headers.ts';
import { pageFrom, pageOf, pageQuery, positionOf } from '../http/pagination.ts';
import { dataOf, json, type Route } from '../http/route.ts';
import { sendRange } from '../http/send-range.ts';
import { fieldsToWire } from '../http/wire-fields.ts';
import { SESSION_ERRORS } from './errors.ts';
import { exampleSandboxId, routesOf } from './route.ts';
import { kernelResource, sandboxResource, workspaceFile } from './wire/sandboxes.ts';

const route = routesOf('Sandboxes');

const MAX_DOWNLOAD_BYTES = 1024 ** 3;

const path = z.string().min(1).describe(WORKSPACE_PATH_RULE);

const bytes = z.instanceof(Buffer).meta({ override: { type: 'string', format: 'binary' } });

const threadId = identifier.default(ROOT_THREAD).describe('the thread whose model has written the code');

const exampleFile: z.output<typeof workspaceFile> = {
  path: 'data/orders.csv',
  bytes: 14,
  media_type: 'text/csv',
  sha256: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
  modified_at: '2026-11-30T08:00:00.000Z',
  is_dir: false,
};

const exampleSandbox: z.output<typeof sandboxResource> = {
  id: exampleSandboxId,
  session_id: 'ses_01kac6dw3e8h4v0m6f2q9x7r5t',
  status: 'ready',
  isolation: 'sandbox',
  kernels: [
    {
      thread_id: 'main',
      generation: 1,
      status: 'ready',
      last_used_at: '2026-11-30T08:00:00.000Z',
      memory_bytes: 94_371_840,
    },
  ],
  workspace: { path: WORKSPACE, files: 1, bytes: 14 },
  expires_at: '2026-11-30T08:30:00.000Z',
  created_at: '2026-11-30T07:59:58.000Z',
};

const sandbox = dataOf(sandboxResource, exampleSandbox);

/** The position of a page of a workspace: the page's first path. */
const pagePosition = z.object({ list: z.string(), path: z.string() });

/** The sandbox of a session, and the files of its workspace as they are stored after each call. */
export function sandboxRoutes(context: ApiContext): Route[] {
  const { catalog, blobs } = context;
  const workspaces = new StoredWorkspaces({ catalog, blobs });
  return [
    route('get', '/v1/agents/sandbox/:sandbox_id/file', {
      id: 'getWorkspaceFile',
      summary: 'The bytes of a file of a workspace, or a range of them',
      query: z.object({ path }),
      response: { written: { '*/*': { schema: z.unknown(), example: 'order,days\n17,3' } } },
      errors: ['forbidden', 'invalid_path', 'file_not_found', 'file_too_large', 'range_not_satisfiable'],
      handler: async ({ params, query, caller, request, response }) => {
        const row = isId(params.sandbox_id) ? await catalog.sandboxes.find(params.sandbox_id) : undefined;
        const session = row && (await catalog.sessions.get(row.session_id));
        if (!row || !session || !mayOnSession(caller, session, 'read')) {
          throw new ApiError(SESSION_ERRORS.sandbox_not_found, 'there is no such sandbox');
        }
        const { config } = await catalog.agents.spec(session.spec_hash);
        if (config?.sandbox?.file_downloads === false) {
          throw new ApiError('forbidden', 'the agent does not offer its files (config.sandbox.file_downloads)');
        }
        const found = await explained(async () => (await workspaces.tree(session.id, row)).file(query.path));
        if (found.bytes > MAX_DOWNLOAD_BYTES) {
          throw new ApiError(SESSION_ERRORS.file_too_large, `the file has ${found.bytes} bytes`);
        }
        const name = posix.basename(found.path);
        const content = (from: number) => workspaces.content(session.id, found, from);
        await explained(() => sendRange(request, response, { ...found, name, type: mediaTypeByName(name), content }));
      },
    }),
    route('get', '/v1/agents/sessions/:session_id/sandbox', {
      id: 'getSandbox',
      summary: 'The sandbox of a session or draft, as it was after its last call',
      response: sandbox,
      handler: async ({ params, caller }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'read');
        return { data: await sandboxOf(session.id) };
      },
    }),
    route('post', '/v1/agents/sessions/:session_id/sandbox/interrupt', {
      id: 'interruptSandbox',
      summary: 'Interrupt the code of a thread',
      description:
        "Raises KeyboardInterrupt in the code, even while it waits for a decision or a tool. The cell's result has what " +
        'was printed, and the turn continues. The response is sent once the turn has recorded the interrupt; the code ' +
        'may run a few seconds longer.',
      body: json(z.strictObject({ thread_id: threadId }), { thread_id: ROOT_THREAD }),
      response: dataOf(z.object({ interrupted: z.boolean().describe('false: no code of the thread runs') }), {
        interrupted: true,
      }),
      errors: ['forbidden', 'code_waits', 'feature_not_available'],
      handler: async ({ params, body, caller }) => {
        const { session } = await changeable(params.session_id, caller);
        const interrupted = await interruptCell(context, { session, caller, threadId: body.thread_id });
        if (interrupted !== 'waiting') return { data: { interrupted: interrupted === 'interrupted' } };
        throw new ApiError(
          SESSION_ERRORS.code_waits,
          'the code waits for a decision, and no turn runs: answer its calls in the next turn, or reset the kernel, which loses it',
        );
      },
    }),
    route('post', '/v1/agents/sessions/:session_id/sandbox/reset', {
      id: 'resetSandbox',
      summary: 'Restart the kernel of a thread',
      description:
        'All variables are lost, files remain; the next cell that relies on variables is not executed, and the model is ' +
        'told. Code that waits for a decision after its turn is lost. The host does it within seconds, and before the ' +
        'next cell in any case. A thread without a kernel stays as it is.',
      headers: z.object(idempotencyKey),
      body: json(
        z.strictObject({
          thread_id: threadId,
          stop: z.boolean().default(false).describe('no other kernel is started before the next cell'),
        }),
        { thread_id: ROOT_THREAD, stop: false },
      ),
      response: sandbox,
      errors: ['forbidden', 'cell_running', 'feature_not_available', 'idempotency_key_reused'],
      handler: async ({ params, headers, body, caller }) => {
        const { session } = await changeable(params.session_id, caller);
        const { id: sessionId } = session;
        const { thread_id: threadId, stop: stops } = body;
        const key = headers['Idempotency-Key'];
        const request = { catalog, caller, resource: `${sessionId}/sandbox/reset`, key, body, sessionId };
        await byKey(request, async ({ resourceId: id }) => {
          const options = { sandboxes: catalog.sandboxes, runsCode: () => runsCode(context, session, threadId) };
          if (await resetKernel(sessionId, { threadId, stops, id }, options)) return;
          throw new ApiError(
            SESSION_ERRORS.cell_running,
            'code runs in the sandbox: interrupt it first, or try again after it',
          );
        });
        return { data: await sandboxOf(sessionId) };
      },
    }),
    route('get', '/v1/agents/sessions/:session_id/workspace', {
      id: 'listWorkspace',
      summary: 'The files in a folder of the workspace of a session or draft, by path',
      query: pageQuery({ defaultLimit: 100, maxLimit: 1_000 }).extend({
        path: z.string().default('.').describe('the folder, relative to the workspace or absolute below it'),
        recursive: z
          .enum(['true', 'false'])
          .default('false')
          .describe('with what is in its folders, and with `.everturn`'),
      }),
      response: pageOf(workspaceFile, [exampleFile], 100),
      errors: ['invalid_path', 'file_not_found'],
      handler: async ({ params, query: { limit, page_token: token, ...query }, caller }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'read');
        const list = sha256(JSON.stringify([session.id, query]));
        const from = positionOf(pagePosition, token, { list });
        const row = await catalog.sandboxes.get(session.id);
        const isRecursive = query.recursive === 'true';
        const items = await explained(async () =>
          (await workspaces.tree(session.id, row)).list(query.path, { isRecursive }),
        );
        const rest = from ? items.filter((item) => item.path >= from.path) : items;
        const placed = rest.map((item) => ({ item: fileToWire(item), position: { list, path: item.path } }));
        return pageFrom(placed, limit);
      },
    }),
    route('put', '/v1/agents/sessions/:session_id/workspace/file', {
      id: 'putWorkspaceFile',
      stores: true,
      summary: 'Write a file into the workspace of a session or draft',
      description: 'With the folders that it needs. The agent finds it with its next call, whichever host runs that.',
      query: z.object({ path }),
      headers: z.object(idempotencyKey),
      isRaw: true,
      body: json(bytes, Buffer.from('order,days\n17,3')),
      response: dataOf(workspaceFile, exampleFile),
      errors: [
        'forbidden',
        'invalid_path',
        'cell_running',
        'workspace_full',
        'feature_not_available',
        'idempotency_key_reused',
      ],
      handler: async ({ params, query, headers, body, caller }) => {
        const { session, workspace } = await changeable(params.session_id, caller);
        const { id: sessionId } = session;
        const key = headers['Idempotency-Key'];
        const request = { caller, resource: `${sessionId}/workspace`, key, body: [query.path, sha256(body)] };
        const file = await byKey({ catalog, ...request, sessionId }, () =>
          explained(() => workspaces.write(sessionId, query.path, { content: body, workspace })),
        );
        return { data: fileToWire({ path: file.path, file }) };
      },
    }),
    route('delete', '/v1/agents/sessions/:session_id/workspace/file', {
      id: 'deleteWorkspaceFile',
      summary: 'Delete a file of the workspace of a session or draft',
      query: z.object({ path }),
      errors: ['forbidden', 'invalid_path', 'file_not_found', 'cell_running', 'feature_not_available'],
      handler: async ({ params, query, caller }) => {
        const { session, workspace } = await changeable(params.session_id, caller);
        await explained(() => workspaces.remove(session.id, query.path, workspace));
      },
    }),
  ];

  /** A session whose workspace the caller may change, and the limits of that. @throws EngineError or ApiError */
  async function changeable(sessionId: string, caller: Caller) {
    const session = requireRight(await authorizeSession(catalog, sessionId, caller, 'read'), caller, 'send');
    const actions = codeActionsOf(await catalog.agents.spec(session.spec_hash));
    if (actions) return { session, workspace: actions.workspace };
    throw new ApiError('feature_not_available', 'the agent of the session does not act in code: it has no workspace');
  }

  async function sandboxOf(sessionId: string): Promise<z.output<typeof sandboxResource>> {
    const row = await catalog.sandboxes.get(sessionId);
    const { status, isolation, kernels, expiresAt } = await sandboxState(row, catalog);
    const list = row && workspaceListOf(row);
    return {
      id: row?.id ?? null,
      session_id: sessionId,
      status,
      isolation,
      kernels: kernels.map((kernel) =>
        fieldsToWire(kernelResource, { ...kernel, lastUsedAt: timeOf(kernel.lastUsedAt) }, 'expiresAt'),
      ),
      workspace: { path: WORKSPACE, files: list?.files ?? 0, bytes: list?.bytes ?? 0 },
      expires_at: expiresAt === null ? null : timeOf(expiresAt),
      created_at: row?.created_at ?? null,
    };
  }
}

function timeOf(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}

function fileToWire(item: StoredItem): z.output<typeof workspaceFile> {
  if (!('file' in item)) {
    return { path: item.path, bytes: 0, media_type: null, sha256: null, modified_at: null, is_dir: true };
  }
  const { bytes, sha256, modifiedAt } = item.file;
  const type = mediaTypeByName(item.path);
  return { path: item.path, bytes, media_type: type, sha256, modified_at: timeOf(modifiedAt), is_dir: false };
}

/** Maps the errors of a workspace. @throws ApiError */
async function explained<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof BlobNotFound) throw new ApiError('file_not_found', 'the file is lost', { cause: error });
    if (!(error instanceof WorkspaceFileError)) throw error;
    const isOfPath = error.code === 'invalid_path' || error.code === 'not_a_file';
    throw new ApiError(KINDS[error.code], error.message, { cause: error, param: isOfPath ? 'path' : undefined });
  }
}

const KINDS: Record<WorkspaceFileError['code'], ErrorKind> = {
  not_found: ERRORS.file_not_found,
  running: SESSION_ERRORS.cell_running,
  full: SESSION_ERRORS.workspace_full,
  invalid_path: SESSION_ERRORS.invalid_path,
  not_a_file: SESSION_ERRORS.invalid_path,
  unsuitable: SESSION_ERRORS.invalid_path,
  failed: SESSION_ERRORS.invalid_path,
};
