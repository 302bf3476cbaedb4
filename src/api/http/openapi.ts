import {
  createDocument,
  type ZodOpenApiOperationObject,
  type ZodOpenApiOverride,
  type ZodOpenApiResponsesObject,
} from 'zod-openapi';
import { z } from 'zod';
import packageJson from '../../../package.json' with { type: 'json' };
import { ApiError, ERRORS, type ErrorCode, type ErrorForm } from './errors.ts';
import { isOptional } from './request.ts';
import {
  DESCRIPTION_PATHS,
  json,
  METHODS,
  PATH_PARAMETERS,
  PRIVATE_PATHS,
  PUBLIC_PATHS,
  route,
  SHARED_PATHS,
  successOf,
  TAGS,
  type Route,
} from './route.ts';

/** What an OpenAPI document describes. */
export interface Face {
  title: string;
  description: string;
  /** The path of the document. */
  path: '/openapi.json' | '/api/v2/openapi.json';
  errors: ErrorForm;
}

/** Adds the route of the document, which describes all routes; with authentication, if keys are currently required. */
export function withDocument(routes: Route[], face: Face, { hasKeys }: { hasKeys: () => boolean }): Route[] {
  const all: Route[] = [
    ...routes,
    route(
      'get',
      face.path,
      {
        id: 'getOpenApi',
        tag: 'Operations',
        summary: 'Get this OpenAPI 3.1 document',
        answer: {
          written: { 'application/json': json(z.looseObject({ openapi: z.string() }), { openapi: '3.1.0' }) },
        },
      },
      ({ response }) => void response.type('json').send(document(hasKeys())),
    ),
  ];
  // As bytes: serializing 0.6 MB takes 20 times as long as sending them, and no key is needed to ask for them.
  const documents = new Map<boolean, Buffer>();
  const document = (withKeys: boolean): Buffer => {
    const cached =
      documents.get(withKeys) ?? Buffer.from(JSON.stringify(openApiDocument(all, face, { hasKeys: withKeys })));
    documents.set(withKeys, cached);
    return cached;
  };
  return all;
}

const commonHeaders = {
  'x-request-id': z
    .string()
    .meta({ description: "identifies the request in the server's log", header: { id: 'x-request-id' } }),
};

const rateLimitHeaders = {
  ratelimit: z
    .string()
    .optional()
    .meta({
      description:
        'requests left in this minute, as in draft 8 of the RateLimit header fields; absent if there is no limit',
      header: { id: 'ratelimit' },
    }),
  'ratelimit-policy': z
    .string()
    .optional()
    .meta({ description: 'requests allowed per minute', header: { id: 'ratelimit-policy' } }),
};

const retryHeaders = {
  'retry-after': z.int().meta({ description: 'seconds until the request may succeed', header: { id: 'retry-after' } }),
};

export function openApiDocument(
  routes: Route[],
  face: Face,
  { hasKeys }: { hasKeys: boolean },
): ReturnType<typeof createDocument> {
  const paths: Record<string, Record<string, ZodOpenApiOperationObject>> = {};
  for (const described of routes) {
    const path = described.path.replaceAll(/[:*](\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [described.method]: operation(described, face, hasKeys) };
  }
  const document = createDocument(
    {
      openapi: '3.1.0',
      info: {
        title: face.title,
        version: packageJson.version,
        description:
          `${face.description} Every response has \`x-request-id\`; every error has the form of \`Error\`. ` +
          'Each path that supports `GET` supports `HEAD`, and each path supports `OPTIONS`; any other method ' +
          'gives 405 with `Allow`, any other path 404.',
      },
      // Relative, so that the prefix under which a proxy serves this document applies to the routes too.
      servers: [{ url: '../'.repeat(face.path.split('/').length - 2) || '.', description: 'this server' }],
      tags: Object.entries(TAGS)
        .filter(([name]) => routes.some(({ declaration }) => declaration.tag === name))
        .map(([name, description]) => ({ name, description })),
      paths,
      components: {
        schemas: Object.fromEntries(routes.flatMap(({ declaration }) => Object.entries(declaration.schemas ?? {}))),
        examples: Object.fromEntries(
          codesOf(ERRORS).map((code) => [
            code,
            { value: face.errors.answer(new ApiError(code, ERRORS[code].description)).body },
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
    { override: matchBehaviour },
  );
  for (const path of Object.values(document.paths ?? {})) {
    for (const method of METHODS) path[method]?.parameters?.forEach(completeParameter);
  }
  return document;
}

/** Corrects a parameter where the library cannot derive it from the schema. */
function completeParameter(parameter: object): void {
  // OpenAPI allows a schema or content, not both.
  if ('content' in parameter && 'schema' in parameter) delete parameter.schema;
  // An empty value counts as absent; see `parseQuery`.
  const isRequired = 'required' in parameter && parameter.required === true;
  if ('in' in parameter && parameter.in === 'query' && !isRequired) Object.assign(parameter, { allowEmptyValue: true });
}

/** Corrects JSON schemas that the library renders differently from how they behave. */
const matchBehaviour: ZodOpenApiOverride = ({ jsonSchema, zodSchema, io }) => {
  // To what only the server sends, later versions add fields, which clients must tolerate. What clients send is strict.
  // An optional object is rendered from the object in it, which has been corrected.
  const isOpen = zodSchema instanceof z.ZodObject && !(zodSchema.def.catchall instanceof z.ZodNever);
  if (jsonSchema.additionalProperties === false && isOpen) delete jsonSchema.additionalProperties;
  // The library renders a schema with a preprocessing step (`bounded`) as optional, even if it rejects undefined.
  if (io === 'input' && zodSchema instanceof z.ZodObject) {
    const required = Object.entries(zodSchema.shape).flatMap(([name, schema]) => (isOptional(schema) ? [] : [name]));
    if (required.length > 0) jsonSchema.required = required;
  }
};

function operation(described: Route, { errors }: Face, hasKeys: boolean): ZodOpenApiOperationObject {
  const { path, declaration } = described;
  const { id, tag, summary, description, query, headers, body, isForm } = declaration;
  const responseHeaders = { ...commonHeaders, ...(isPrivate(path) && rateLimitHeaders) };
  const bodyType = isForm ? 'application/x-www-form-urlencoded' : 'application/json';
  const pathParameters = Object.entries(PATH_PARAMETERS).filter(([name]) =>
    path.split('/').some((segment) => segment === `:${name}` || segment === `*${name}`),
  );
  return {
    operationId: id,
    tags: [tag],
    summary,
    ...(description && { description }),
    requestParams: {
      ...(pathParameters.length > 0 && { path: z.object(Object.fromEntries(pathParameters)) }),
      ...(query && { query }),
      ...(headers && { header: headers }),
    },
    ...(body && { requestBody: { required: !isOptional(body.schema), content: { [bodyType]: { ...body } } } }),
    responses: {
      ...success(declaration, responseHeaders),
      ...failures(refusals(described, { hasKeys }), errors, responseHeaders),
    },
    security: hasKeys && isPrivate(path) ? [...(isPublic(described) ? [{}] : []), { key: [] }] : [],
  };
}

/** What an empty response with this status means; others: it is done. */
const EMPTY: Partial<Record<number, string>> = { 202: 'accepted', 302: 'it is at the address in the header Location' };

function success(declaration: Route['declaration'], responseHeaders: z.core.$ZodShape): ZodOpenApiResponsesObject {
  const { answer, noContent } = declaration;
  const status = successOf(declaration);
  const headers = z.object(responseHeaders);
  if (!answer) return { [`${status}` as const]: { description: EMPTY[status] ?? 'done', headers } };
  const contents = 'written' in answer ? answer.written : { 'application/json': answer };
  const content = Object.fromEntries(Object.entries(contents).map(([type, of]) => [type, { ...of }]));
  return {
    [`${status}` as const]: { description: 'success', headers, content },
    ...(noContent && { 204: { description: noContent, headers } }),
  };
}

/** The error codes of a route: those that follow from its declaration, and those that it lists itself. */
export function refusals({ path, declaration }: Route, { hasKeys }: { hasKeys: boolean }): ErrorCode[] {
  const { query, headers, body, requires, stores, errors = [] } = declaration;
  const rules: [boolean, ErrorCode[]][] = [
    [true, ['invalid_http', 'request_timeout', 'expectation_failed', 'headers_too_large', 'internal_error']],
    [!hasKeys, ['not_local']],
    [hasKeys && isPrivate(path), ['unauthenticated']],
    [requires !== undefined, ['forbidden']],
    [isPrivate(path), ['rate_limited', 'unavailable']],
    [isAt(DESCRIPTION_PATHS, path), ['rate_limited']],
    [/[:*]/.test(path) || Boolean(query ?? headers ?? body), ['invalid_request']],
    [body !== undefined, ['invalid_json', 'body_too_large', 'unsupported_media_type']],
    [stores === true, ['storage_full']],
  ];
  return [...rules.flatMap(([applies, codes]) => (applies ? codes : [])), ...errors];
}

function isPublic({ method, path }: Route): boolean {
  return PUBLIC_PATHS.includes(path) || (method === 'get' && SHARED_PATHS.includes(path));
}

function isPrivate(path: string): boolean {
  return isAt(PRIVATE_PATHS, path);
}

function isAt(prefixes: string[], path: string): boolean {
  return prefixes.some((prefix) => path === prefix || path.startsWith(`${prefix}/`));
}

function failures(codes: ErrorCode[], errors: ErrorForm, responseHeaders: z.core.$ZodShape): ZodOpenApiResponsesObject {
  const responses: ZodOpenApiResponsesObject = {};
  for (const [status, ofStatus] of Map.groupBy(codes, (code) => errors.statusOf(code))) {
    const isRetryable = ofStatus.some((code) => 'retryAfter' in ERRORS[code]);
    responses[`${status}`] = {
      description: ofStatus.map((code) => `\`${code}\`: ${ERRORS[code].description}`).join('\n\n'),
      headers: z.object({ ...responseHeaders, ...(isRetryable && retryHeaders) }),
      content: {
        'application/json': {
          schema: errors.body,
          examples: Object.fromEntries(ofStatus.map((code) => [code, { $ref: `#/components/examples/${code}` }])),
        },
      },
    };
  }
  return responses;
}

function codesOf(errors: typeof ERRORS): ErrorCode[] {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- its own keys
  return Object.keys(errors) as ErrorCode[];
}
