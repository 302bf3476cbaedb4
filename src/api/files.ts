import type { IRouter } from 'express';
import { z } from 'zod';
import type { ApiContext } from './context.ts';
import { contextOf, param, parseQuery } from './request.ts';
import { route } from './routes.ts';
import { ownSession } from './sessions.ts';

/** What the file is called and is, as our own URLs say; see `fileUrl`. */
const fileQuery = z.object({
  name: z.string().default('file'),
  type: z
    .string()
    .regex(/^[\w.+-]+\/[\w.+-]+$/)
    .default('application/octet-stream'),
});

/** `/v1/agents/sessions/{sid}/files/{id}`: the bytes of a file that is too large for an event. */
export function fileRoutes(router: IRouter, { catalog, blobs }: ApiContext): void {
  route(router, '/v1/agents/sessions/:sid/files/:id', {
    get: async (request, response) => {
      const session = await ownSession(catalog, param(request, 'sid'), contextOf(response).subject);
      const { name, type } = parseQuery(fileQuery, request);
      const bytes = await blobs.get(session.id, param(request, 'id'));
      response.attachment(name);
      response.set({
        'content-type': type,
        // Users and tools write these files: a browser must not run what is in them.
        'content-security-policy': "default-src 'none'; sandbox",
        'cache-control': 'private, max-age=31536000, immutable',
      });
      response.send(bytes);
    },
  });
}
