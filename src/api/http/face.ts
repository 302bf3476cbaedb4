import type { WebhookFormat } from '../../features/webhooks/webhook-format.ts';
import type { ApiContext } from './context.ts';
import type { ErrorForm } from './errors.ts';
import type { Description } from './openapi.ts';
import type { Access, FaceFacts, Route } from './route.ts';

/** One API of the server, as the framework needs it. */
export interface Face extends FaceFacts {
  name: string;
  errors: ErrorForm;
  /** The description in its own OpenAPI document. Without one, its routes are in the document of operations. */
  document?: Description;
  /** Matches the requests of `sharedPaths`. */
  sharedReads?: RegExp;
  /** URLs may have another path before these, as in the base URL of an SDK. */
  sdkPaths?: readonly string[];
  /** Requests are recorded as spans. */
  isTraced?: true;
  /** The messages for its webhooks, if it has any. */
  webhooks?: (services: Pick<ApiContext, 'catalog' | 'logs' | 'log'>) => WebhookFormat;
  /** In order of precedence. */
  routes: (context: ApiContext) => Route[];
}

/** The paths of faces at and below which requests are admitted in this way. */
export function prefixesOf(faces: readonly Face[], access: Access): string[] {
  return faces.flatMap(({ prefixes }) => Object.keys(prefixes).filter((prefix) => prefixes[prefix] === access));
}

/** Finds the face of a path: the one with the longest prefix. */
export function faceFinder(faces: readonly Face[]): (path: string) => Face | undefined {
  const prefixes = faces
    .flatMap((face) => Object.keys(face.prefixes).map((prefix) => ({ prefix, face })))
    .toSorted((a, b) => b.prefix.length - a.prefix.length)
    .map(({ prefix, face }) => ({ pattern: new RegExp(`^${prefix.replaceAll(/:\w+/g, '[^/]+')}(?:/|$)`), face }));
  return (path) => prefixes.find(({ pattern }) => pattern.test(path))?.face;
}
