import { z } from 'zod';
import { authorizeSession } from '../../engine/access.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import { json, type Route } from '../http/route.ts';
import { fileResponse, fileQuery, sendFile } from '../http/send-file.ts';
import { routesOf } from './route.ts';
import { authorizeRead } from './access.ts';
import { FILES_BUCKET } from './resource-paths.ts';
import { fromUuid } from './session-ids.ts';

const route = routesOf('Agent sessions');

/** The name of a blob. */
const FILE_ID = /^[\da-f]{64}$/;

const query = fileQuery(z.string().max(256));

const path = z.string().min(1).max(4_096);

/** The routes of files on the device of an agent. Agents of this server have no device. */
const DEVICE_FILES = [
  {
    name: 'list_files',
    id: 'listFiles',
    summary: 'List files of the device of a session',
    body: json<z.ZodType>(
      z.strictObject({
        path: path.default('~/Downloads'),
        max_entries: z.int().min(1).default(500),
        modified_before: z.iso.datetime({ offset: true }).nullish(),
        name_after: z.string().max(4_096).nullish(),
      }),
      { path: '~/Downloads', max_entries: 500 },
    ),
  },
  {
    name: 'read_file',
    id: 'readFile',
    summary: 'Read a file of the device of a session',
    body: json<z.ZodType>(z.strictObject({ path }), { path: '~/Downloads/orders.csv' }),
  },
  {
    name: 'write_file',
    id: 'writeFile',
    summary: 'Write a file of the device of a session',
    body: json<z.ZodType>(z.strictObject({ path, content_base64: z.base64() }), {
      path: '~/orders.csv',
      content_base64: 'MTcKMjMK',
    }),
  },
] as const;

/** The files of sessions: those in their events, and those of devices. */
export function fileRoutes({ catalog, blobs }: ApiContext): Route[] {
  return [
    // Before the route of a file, whose path has the same form.
    ...DEVICE_FILES.map(({ name, id, summary, body }) =>
      route('post', `/api/v2/sessions/:id/files/${name}`, {
        id,
        ...(name === 'write_file' && { largeBody: true }),
        summary,
        description: 'Agents of this server act on no device whose files they could share: this is always an error.',
        body,
        response: json(z.looseObject({ path }), { path: '~/Downloads' }),
        errors: ['forbidden', 'feature_not_available'],
        handler: async ({ params, caller }) => {
          await authorizeSession(catalog, fromUuid(params.id), caller, name === 'write_file' ? 'send' : 'read');
          const message = 'the session has no environment with files: agents of this server act on no device';
          throw new ApiError('feature_not_available', message);
        },
      }),
    ),
    route('get', '/api/v2/sessions/:id/resources/:bucket/*key', {
      id: 'getSessionResource',
      summary: 'A file in an event of a session',
      description: 'Leads to its bytes.',
      query,
      status: 302,
      handler: async ({ params: { id, bucket, key }, query, caller, response }) => {
        await authorizeRead(catalog, id, caller);
        if (bucket !== FILES_BUCKET || !FILE_ID.test(key))
          throw new ApiError('file_not_found', 'there is no such file');
        // Always to this server, not to the blob store: its bytes may be compressed and encrypted, and clients may not
        // reach it. Relative, so that the prefix under which a proxy serves this server applies.
        response.location(`../../files/${key}?${new URLSearchParams(query).toString()}`);
      },
    }),
    route('get', '/api/v2/sessions/:id/files/:file_id', {
      id: 'getSessionFile',
      summary: 'The bytes of a file in an event of a session',
      query,
      response: fileResponse,
      handler: async ({ params, query: { name, type }, caller, response }) => {
        const { session } = await authorizeRead(catalog, params.id, caller);
        await sendFile(response, { blobs, sessionId: session.id, blob: params.file_id, name, type });
      },
    }),
  ];
}
