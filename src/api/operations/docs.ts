import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { z } from 'zod';
import { ApiError } from '../http/errors.ts';
import type { Route } from '../http/route.ts';
import { routesOf } from './route.ts';

const route = routesOf('Operations');

const require = createRequire(import.meta.url);

/** Only this server's own scripts run, and the page sends requests to this server only. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

const PAGE = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>Everturn API</title>
    <link rel="icon" href="docs/favicon-32x32.png" />
    <link rel="stylesheet" href="docs/swagger-ui.css" />
  </head>
  <body>
    <div id="docs"></div>
    <script src="docs/swagger-ui-bundle.js"></script>
    <script src="docs/start.js"></script>
  </body>
</html>
`;

// No validator: by default Swagger UI sends the document to one on the internet.
const START = `SwaggerUIBundle({
  dom_id: '#docs',
  url: 'openapi.json',
  validatorUrl: null,
  deepLinking: true,
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
});
`;

/** The files of the page that come from `swagger-ui-dist`. */
const VENDORED = new Set(['swagger-ui.css', 'swagger-ui-bundle.js', 'favicon-32x32.png']);

/** `/docs`: Swagger UI on `/openapi.json`, without requests to other servers. */
export function docsRoutes(): Route[] {
  return [
    route('get', '/docs', {
      id: 'getDocs',
      summary: 'Get this description as a page on which requests can be tried',
      response: { written: { 'text/html': { schema: z.string(), example: '<!doctype html>' } } },
      handler: ({ request, response }) => {
        // The page's links are relative, so that it works behind any prefix, and do not work from `/docs/`.
        if (request.path.endsWith('/')) return response.redirect('../docs');
        response.set('content-security-policy', CONTENT_SECURITY_POLICY).type('html').send(PAGE);
      },
    }),
    route('get', '/docs/:asset', {
      id: 'getDocsAsset',
      summary: 'Get a file of the page',
      response: { written: { '*/*': { schema: z.unknown(), example: START } } },
      errors: ['not_found'],
      handler: async ({ params: { asset }, response }) => {
        const content = asset === 'start.js' ? START : await vendored(asset);
        response.set('cache-control', 'public, max-age=3600').type(asset).send(content);
      },
    }),
  ];
}

/** Each file is read once, so that concurrent and slow downloads share one copy in memory. */
const files = new Map<string, Promise<Buffer>>();

async function vendored(asset: string): Promise<Buffer> {
  if (!VENDORED.has(asset)) throw new ApiError('not_found', `the page has no file ${JSON.stringify(asset)}`);
  const content = files.get(asset) ?? readFile(require.resolve(`swagger-ui-dist/${asset}`));
  files.set(asset, content);
  return content;
}
