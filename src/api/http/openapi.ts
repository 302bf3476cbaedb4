import {
  createDocument,
  type ZodOpenApiOperationObject,
  type ZodOpenApiOverride,
  type ZodOpenApiResponsesObject,
} from 'zod-openapi';
import { z } from 'zod';
import packageJson from '../../../package.json' with { type: 'json' };
import { ApiError, ERRORS, type CommonCode, type ErrorForm, type ErrorKind } from './errors.ts';
import { isOptional } from './request.ts';
import { accessOf, json, METHODS, routesOfFace, successOf, type FaceFacts, type Route } from './route.ts';

/** What an OpenAPI document describes. */
export interface Description {
  title: string;
  description: string;
  /** The path of the document. */
  path: string;
}

/** The group of the document itself, and of the routes for operators. */
export const OPERATIONS_TAG = { Operations: 'health, metrics, MCP servers and this description' };

/** A document, and what the routes in it refer to. */
export interface DocumentOptions {
  about: Description;
  /** The form of its errors. */
  errors: ErrorForm;
  /** The groups of routes of all faces, in order. */
  tags: Readonly<Record<string, string>>;
  /** The kinds of errors of all faces. */
  kinds: readonly ErrorKind[];
}

/** Adds the route of the document, which describes all routes; with authentication, if keys are currently required. */
export function withDocument(
  routes: Route[],
  facts: Pick<FaceFacts, 'prefixes' | 'publicPaths'>,
  options: DocumentOptions,
  { hasKeys }: { hasKeys: () => boolean },
): Route[] {
  const route = routesOfFace({ ...facts, tags: OPERATIONS_TAG, parameters: {} })('Operations');
  const all: Route[] = [
    ...routes,
    route('get', options.about.path, {
      id: 'getOpenApi',
      summary: 'Get this OpenAPI 3.1 document',
      response: {
        written: { 'application/json': json(z.looseObject({ openapi: z.string() }), { openapi: '3.1.0' }) },
      },
      handler: ({ response }) => void response.type('json').send(document(hasKeys())),
    }),
  ];
  // As bytes: serializing 0.6 MB takes 20 times as long as sending them, and no key is needed to ask for them.
  const documents = new Map<boolean, Buffer>();
  const document = (withKeys: boolean): Buffer => {
    const cached =
      documents.get(withKeys) ?? Buffer.from(JSON.stringify(openApiDocument(all, options, { hasKeys: withKeys })));
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
  { about, errors, tags, kinds }: DocumentOptions,
  { hasKeys }: { hasKeys: boolean },
): ReturnType<typeof createDocument> {
  const paths: Record<string, Record<string, ZodOpenApiOperationObject>> = {};
  const form = { errors, body: errors.body(kinds) };
  for (const described of routes.filter(({ declaration }) => !declaration.isUndocumented)) {
    const path = described.path.replaceAll(/[:*](\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [described.method]: operation(described, form, hasKeys) };
  }
  const document = createDocument(
    {
      openapi: '3.1.0',
      info: {
        title: about.title,
        version: packageJson.version,
        description:
          `${about.description} Every response has \`x-request-id\`; every error has the form of \`Error\`. ` +
          'Each path that supports `GET` supports `HEAD`, and each path supports `OPTIONS`; any other method ' +
          'gives 405 with `Allow`, any other path 404.',
      },
      // Relative, so that the prefix under which a proxy serves this document applies to the routes too.
      servers: [{ url: '../'.repeat(about.path.split('/').length - 2) || '.', description: 'this server' }],
      tags: Object.entries(tags)
        .filter(([name]) => routes.some(({ tag }) => tag === name))
        .map(([name, description]) => ({ name, description })),
      paths,
      components: {
        schemas: Object.fromEntries(routes.flatMap(({ declaration }) => Object.entries(declaration.schemas ?? {}))),
        examples: Object.fromEntries(
          kinds.map((kind) => [kind.code, { value: errors.toResponse(new ApiError(kind, kind.description)).body }]),
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
  // Later versions add fields to what only the server sends: clients must tolerate them. What clients send is strict.
  // An optional object is rendered from the object in it, which has been corrected.
  const isOpen = zodSchema instanceof z.ZodObject && !(zodSchema.def.catchall instanceof z.ZodNever);
  if (jsonSchema.additionalProperties === false && isOpen) delete jsonSchema.additionalProperties;
  // The library renders a schema with a preprocessing step (`bounded`) as optional, even if it rejects undefined.
  if (io === 'input' && zodSchema instanceof z.ZodObject) {
    const required = Object.entries(zodSchema.shape).flatMap(([name, schema]) => (isOptional(schema) ? [] : [name]));
    if (required.length > 0) jsonSchema.required = required;
  }
};

/** The form of errors, with the schema of its body. */
interface DescribedForm {
  errors: ErrorForm;
  body: z.ZodType;
}

function operation(described: Route, form: DescribedForm, hasKeys: boolean): ZodOpenApiOperationObject {
  const { path, tag, declaration, facts } = described;
  const isPrivate = accessOf(facts, path) === 'key';
  const { id, summary, description, query, headers, body, isForm, isRaw } = declaration;
  const responseHeaders = { ...commonHeaders, ...(isPrivate && rateLimitHeaders) };
  const jsonOrForm = isForm ? 'application/x-www-form-urlencoded' : 'application/json';
  const bodyType = isRaw ? 'application/octet-stream' : jsonOrForm;
  const names = parametersOf(path);
  const pathParameters = Object.entries(facts.parameters).filter(([name]) => names.includes(name));
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
    ...(body && {
      requestBody: {
        required: !isOptional(body.schema),
        content: { [bodyType]: isRaw ? { ...body, example: String(body.example) } : { ...body } },
      },
    }),
    responses: {
      ...success(declaration, responseHeaders),
      ...failures(refusals(described, { hasKeys }), form, responseHeaders),
    },
    security: hasKeys && isPrivate ? [...(isPublic(described) ? [{}] : []), { key: [] }] : [],
  };
}

/** The descriptions of empty responses by their status; all others are described as `done`. */
const EMPTY: Partial<Record<number, string>> = { 202: 'accepted', 302: 'it is at the address in the header Location' };

function success(declaration: Route['declaration'], responseHeaders: z.core.$ZodShape): ZodOpenApiResponsesObject {
  const { response, noContent, existing } = declaration;
  const status = successOf(declaration);
  const headers = z.object(responseHeaders);
  if (!response) return { [`${status}` as const]: { description: EMPTY[status] ?? 'done', headers } };
  const contents = 'written' in response ? response.written : { 'application/json': response };
  const content = Object.fromEntries(Object.entries(contents).map(([type, of]) => [type, { ...of }]));
  return {
    [`${status}` as const]: { description: 'success', headers, content },
    ...(existing && { 200: { description: existing, headers, content } }),
    ...(noContent && { 204: { description: noContent, headers } }),
  };
}

/** The errors of a route: those that follow from its declaration, and those that it lists itself. */
export function refusals({ path, declaration, facts }: Route, { hasKeys }: { hasKeys: boolean }): ErrorKind[] {
  const access = accessOf(facts, path);
  const { query, headers, body, requires, stores, response, isRaw, errors = [] } = declaration;
  const rules: [boolean, CommonCode[]][] = [
    [true, ['invalid_http', 'request_timeout', 'expectation_failed', 'headers_too_large', 'internal_error']],
    [!hasKeys, ['not_local']],
    [hasKeys && access === 'key', ['unauthenticated']],
    [requires !== undefined, ['forbidden']],
    [access === 'key', ['rate_limited', 'unavailable']],
    [access === 'address', ['rate_limited']],
    [/[:*]/.test(path) || Boolean(query ?? headers ?? body), ['invalid_request']],
    [body !== undefined, ['body_too_large', 'unsupported_media_type']],
    [body !== undefined && !isRaw, ['invalid_json']],
    [stores === true, ['storage_full']],
    [query !== undefined && 'page_token' in query.shape, ['invalid_page_token']],
    [headers !== undefined && 'Last-Event-ID' in headers.shape, ['invalid_cursor']],
  ];
  const isStream = response !== undefined && 'written' in response && 'text/event-stream' in response.written;
  const known: Readonly<Record<string, ErrorKind>> = { ...ERRORS, ...facts.errorKinds };
  return [
    ...rules.flatMap(([applies, codes]) => (applies ? codes.map((code) => ERRORS[code]) : [])),
    ...(access === 'key' ? parametersOf(path).flatMap((name) => facts.notFound?.[name] ?? []) : []),
    ...errors.flatMap((code) => known[code] ?? []),
    ...(isStream ? [ERRORS.too_many_streams] : []),
  ];
}

/** The names of the parameters of a path. */
function parametersOf(path: string): string[] {
  return Array.from(path.matchAll(/[:*](\w+)/g), ([, name = '']) => name);
}

function isPublic({ method, path, facts }: Route): boolean {
  return facts.publicPaths?.includes(path) || (method === 'get' && facts.sharedPaths?.includes(path)) || false;
}

function failures(
  kinds: ErrorKind[],
  { errors, body }: DescribedForm,
  responseHeaders: z.core.$ZodShape,
): ZodOpenApiResponsesObject {
  const responses: ZodOpenApiResponsesObject = {};
  for (const [status, ofStatus] of Map.groupBy(kinds, (kind) => errors.statusOf(kind))) {
    const isRetryable = ofStatus.some(({ retryAfter }) => retryAfter !== undefined);
    responses[`${status}`] = {
      description: ofStatus.map(({ code, description }) => `\`${code}\`: ${description}`).join('\n\n'),
      headers: z.object({ ...responseHeaders, ...(isRetryable && retryHeaders) }),
      content: {
        'application/json': {
          schema: body,
          examples: Object.fromEntries(ofStatus.map(({ code }) => [code, { $ref: `#/components/examples/${code}` }])),
        },
      },
    };
  }
  return responses;
}
