import {
  createDocument,
  type ZodOpenApiOperationObject,
  type ZodOpenApiOverride,
  type ZodOpenApiResponsesObject,
} from 'zod-openapi';
import { z } from 'zod';
import packageJson from '../../../package.json' with { type: 'json' };
import { errorBody, ERRORS, type ErrorCode } from './errors.ts';
import { isOptional } from './request.ts';
import { json, METHODS, PATH_PARAMETERS, PRIVATE_PATHS, route, TAGS, type Route } from './route.ts';

/** The routes and one more, `/openapi.json`, which describes them all; with keys, if they are needed now. */
export function withDocument(routes: Route[], { hasKeys }: { hasKeys: () => boolean }): Route[] {
  const all: Route[] = [
    ...routes,
    route(
      'get',
      '/openapi.json',
      {
        id: 'getOpenApi',
        tag: 'Operations',
        summary: 'This description of the API, in OpenAPI 3.1',
        answer: json(z.looseObject({ openapi: z.string() }), { openapi: '3.1.0' }),
      },
      () => ({ ...document(hasKeys()) }),
    ),
  ];
  const made = new Map<boolean, ReturnType<typeof openApiDocument>>();
  const document = (withKeys: boolean): ReturnType<typeof openApiDocument> => {
    const known = made.get(withKeys) ?? openApiDocument(all, { hasKeys: withKeys });
    made.set(withKeys, known);
    return known;
  };
  return all;
}

const everyAnswer = {
  'x-request-id': z
    .string()
    .meta({ description: 'names the request in the log of the server', header: { id: 'x-request-id' } }),
};

const ofLimited = {
  ratelimit: z
    .string()
    .optional()
    .meta({
      description:
        'how many requests are left in this minute, as in draft 8 of the RateLimit fields; none where nothing is limited',
      header: { id: 'ratelimit' },
    }),
  'ratelimit-policy': z
    .string()
    .optional()
    .meta({ description: 'how many requests a minute has', header: { id: 'ratelimit-policy' } }),
};

const tryAgain = {
  'retry-after': z.int().meta({ description: 'seconds until the request may succeed', header: { id: 'retry-after' } }),
};

export function openApiDocument(routes: Route[], { hasKeys }: { hasKeys: boolean }): ReturnType<typeof createDocument> {
  const paths: Record<string, Record<string, ZodOpenApiOperationObject>> = {};
  for (const described of routes) {
    const path = described.path.replaceAll(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [described.method]: operation(described, hasKeys) };
  }
  const document = createDocument(
    {
      openapi: '3.1.0',
      info: {
        title: 'Everturn',
        version: packageJson.version,
        description:
          'A server that runs AI agent conversations. Every answer has `x-request-id`; every error has the form of ' +
          '`Error`. `HEAD` is answered wherever `GET` is, and `OPTIONS` everywhere; any other method is 405 with `Allow`, ' +
          'any other path is 404.',
      },
      // Whatever prefix a proxy puts in front of this document is in front of the routes too.
      servers: [{ url: '.', description: 'this server' }],
      tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
      paths,
      components: {
        schemas: Object.fromEntries(routes.flatMap(({ declaration }) => Object.entries(declaration.schemas ?? {}))),
        examples: Object.fromEntries(
          Object.entries(ERRORS).map(([code, { type, means }]) => [
            code,
            { value: { error: { message: means, type, code } } satisfies z.infer<typeof errorBody> },
          ]),
        ),
        ...(hasKeys && {
          securitySchemes: {
            key: {
              type: 'http',
              scheme: 'bearer',
              description: 'An API key, or a token of the OpenID Connect provider of this server.',
            },
          },
        }),
      },
    },
    { override: asItIs },
  );
  for (const path of Object.values(document.paths ?? {})) {
    for (const method of METHODS) path[method]?.parameters?.forEach(completeParameter);
  }
  return document;
}

/** What the schema of a parameter does not say to the library. */
function completeParameter(parameter: object): void {
  // It has a schema or a content, not both.
  if ('content' in parameter && 'schema' in parameter) delete parameter.schema;
  // An empty value is none; see `parseQuery`.
  if ('in' in parameter && parameter.in === 'query') Object.assign(parameter, { allowEmptyValue: true });
}

/** Where schemas are not rendered as they behave. */
const asItIs: ZodOpenApiOverride = ({ jsonSchema, zodSchema, io }) => {
  // Clients must bear fields that later versions add.
  if (jsonSchema.additionalProperties === false) delete jsonSchema.additionalProperties;
  // A schema that looks at the value first (`bounded`) is rendered as optional, whatever it says to undefined.
  if (io === 'input' && zodSchema instanceof z.ZodObject) {
    const required = Object.entries(zodSchema.shape).flatMap(([name, schema]) => (isOptional(schema) ? [] : [name]));
    if (required.length > 0) jsonSchema.required = required;
  }
};

function operation(described: Route, hasKeys: boolean): ZodOpenApiOperationObject {
  const { path, declaration } = described;
  const { id, tag, summary, description, query, headers, body } = declaration;
  const answered = { ...everyAnswer, ...(isPrivate(path) && ofLimited) };
  const inPath = Object.entries(PATH_PARAMETERS).filter(([name]) => path.split('/').includes(`:${name}`));
  return {
    operationId: id,
    tags: [tag],
    summary,
    ...(description && { description }),
    requestParams: {
      ...(inPath.length > 0 && { path: z.object(Object.fromEntries(inPath)) }),
      ...(query && { query }),
      ...(headers && { header: headers }),
    },
    ...(body && {
      requestBody: { required: !isOptional(body.schema), content: { 'application/json': { ...body } } },
    }),
    responses: { ...success(declaration, answered), ...failures(refusals(described, { hasKeys }), answered) },
    security: hasKeys && isPrivate(path) ? [{ key: [] }] : [],
  };
}

function success(declaration: Route['declaration'], answered: z.core.$ZodShape): ZodOpenApiResponsesObject {
  const { answer, status = 200, nothing } = declaration;
  const headers = z.object(answered);
  if (!answer) return { 204: { description: 'done', headers } };
  const contents = 'written' in answer ? answer.written : { 'application/json': answer };
  const content = Object.fromEntries(Object.entries(contents).map(([type, of]) => [type, { ...of }]));
  return {
    [`${status}` as const]: { description: 'success', headers, content },
    ...(nothing && { 204: { description: nothing, headers } }),
  };
}

/** What a route may be refused with: by rule, and what it says itself. */
export function refusals({ path, declaration }: Route, { hasKeys }: { hasKeys: boolean }): ErrorCode[] {
  const { query, headers, body, requires, errors = [] } = declaration;
  const rules: [boolean, ErrorCode[]][] = [
    [true, ['invalid_http', 'request_timeout', 'expectation_failed', 'headers_too_large', 'internal_error']],
    [!hasKeys, ['not_local']],
    [hasKeys && isPrivate(path), ['unauthenticated']],
    [requires !== undefined, ['forbidden']],
    [isPrivate(path), ['rate_limited', 'unavailable']],
    [path.includes(':') || Boolean(query ?? headers ?? body), ['invalid_request']],
    [body !== undefined, ['invalid_json', 'body_too_large', 'unsupported_media_type']],
  ];
  return [...rules.flatMap(([applies, codes]) => (applies ? codes : [])), ...errors];
}

function isPrivate(path: string): boolean {
  return PRIVATE_PATHS.some((prefix) => path === prefix || path.startsWith(`${prefix}/`));
}

function failures(codes: ErrorCode[], answered: z.core.$ZodShape): ZodOpenApiResponsesObject {
  const responses: ZodOpenApiResponsesObject = {};
  for (const [status, same] of Map.groupBy(codes, (code) => ERRORS[code].status)) {
    responses[`${status}`] = {
      description: same.map((code) => `\`${code}\`: ${ERRORS[code].means}`).join('\n\n'),
      headers: z.object({ ...answered, ...(same.some((code) => 'retryAfter' in ERRORS[code]) && tryAgain) }),
      content: {
        'application/json': {
          schema: errorBody,
          examples: Object.fromEntries(same.map((code) => [code, { $ref: `#/components/examples/${code}` }])),
        },
      },
    };
  }
  return responses;
}
