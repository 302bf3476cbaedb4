import { readableSession } from '../../engine/access.ts';
import type { ApiContext } from '../http/context.ts';
import type { Route } from '../http/route.ts';
import { fileResponse, fileQuery, sendFile } from '../http/send-file.ts';
import { routesOf } from './route.ts';

const route = routesOf('Events');

/** `/v1/agents/sessions/{session_id}/files/{file_id}`: the bytes of a file that is too large for an event. */
export function fileRoutes({ catalog, blobs }: ApiContext): Route[] {
  return [
    route('get', '/v1/agents/sessions/:session_id/files/:file_id', {
      id: 'getFile',
      summary: 'The bytes of a file, or of a result that is too large for an event',
      query: fileQuery(),
      response: fileResponse,
      handler: async ({ params, query: { name, type }, caller, response }) => {
        const session = await readableSession(catalog, params.session_id, caller);
        await sendFile(response, { blobs, sessionId: session.id, blob: params.file_id, name, type });
      },
    }),
  ];
}
