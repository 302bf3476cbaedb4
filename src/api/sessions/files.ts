import { z } from 'zod';
import { readableSession } from '../../engine/access.ts';
import { MEDIA_TYPE } from '../../spec/bounds.ts';
import type { ApiContext } from '../http/context.ts';
import type { Route } from '../http/route.ts';
import { sendFile } from '../http/send-file.ts';
import { routesOf } from './route.ts';

const route = routesOf('Events');

/** The name and type of the file, from the URL that `fileUrl` makes. */
const fileQuery = z.object({
  name: z.string().default('file').describe('the name under which the file is saved'),
  type: z
    .string()
    .regex(new RegExp(`^${MEDIA_TYPE}$`))
    .default('application/octet-stream')
    .describe('its media type'),
});

/** `/v1/agents/sessions/{session_id}/files/{file_id}`: the bytes of a file that is too large for an event. */
export function fileRoutes({ catalog, blobs }: ApiContext): Route[] {
  return [
    route('get', '/v1/agents/sessions/:session_id/files/:file_id', {
      id: 'getFile',
      summary: 'The bytes of a file, or of a result that is too large for an event',
      query: fileQuery,
      answer: { written: { '*/*': { schema: z.unknown(), example: 'late orders: 17, 23' } } },
      handler: async ({ params, query: { name, type }, caller, response }) => {
        const session = await readableSession(catalog, params.session_id, caller);
        await sendFile(response, { blobs, sessionId: session.id, blob: params.file_id, name, type });
      },
    }),
  ];
}
