import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { z } from 'zod';
import { ApiError } from '../http/errors.ts';
import { route, type Route } from '../http/route.ts';

const require = createRequire(import.meta.url);

/** Nothing but our own files runs here, and the page talks to this server only. */
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

// Without a validator: Swagger UI would send the document to one on the internet.
const START = `SwaggerUIBundle({
  dom_id: '#docs',
  url: 'openapi.json',
  validatorUrl: null,
  deepLinking: true,
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
});
`;

/** The files of the page, but for our own script. */
const VENDORED = new Set(['swagger-ui.css', 'swagger-ui-bundle.js', 'favicon-32x32.png']);

/** `/docs`: the document at `/openapi.json` for people, without any request to elsewhere. */
export function docsRoutes(): Route[] {
  return [
    route(
      'get',
      '/docs',
      {
        id: 'getDocs',
        tag: 'Operations',
        summary: 'This description of the API, as a page to try it on',
        answer: { written: { 'text/html': { schema: z.string(), example: '<!doctype html>' } } },
      },
      ({ request, response }) => {
        // The page's links are relative, so that it works behind any prefix, and lead nowhere from /docs/.
        if (request.path.endsWith('/')) return response.redirect('../docs');
        response.set('content-security-policy', CONTENT_SECURITY_POLICY).type('html').send(PAGE);
      },
    ),
    route(
      'get',
      '/docs/:asset',
      {
        id: 'getDocsAsset',
        tag: 'Operations',
        summary: 'A file of the page',
        answer: { written: { '*/*': { schema: z.unknown(), example: START } } },
        errors: ['not_found'],
      },
      async ({ params: { asset }, response }) => {
        const content = asset === 'start.js' ? START : await vendored(asset);
        response.set('cache-control', 'public, max-age=3600').type(asset).send(content);
      },
    ),
  ];
}

/** Read once: however many ask at a time, and take as long as they may, there is one of each in memory. */
const read = new Map<string, Promise<Buffer>>();

async function vendored(asset: string): Promise<Buffer> {
  if (!VENDORED.has(asset)) throw new ApiError('not_found', `the page has no file ${JSON.stringify(asset)}`);
  const content = read.get(asset) ?? readFile(require.resolve(`swagger-ui-dist/${asset}`));
  read.set(asset, content);
  return content;
}
