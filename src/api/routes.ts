import type { IRouter, RequestHandler } from 'express';
import { ApiError } from './errors.ts';

type Method = 'get' | 'post' | 'put' | 'patch' | 'delete';

/** Adds a path with its methods; every other method on it is answered with 405 and the list of those. */
export function route(router: IRouter, path: string, methods: Partial<Record<Method, RequestHandler>>): void {
  const at = router.route(path);
  const allowed: string[] = ['OPTIONS'];
  for (const [method, handler] of Object.entries(methods)) {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the keys of the object are its methods
    at[method as Method](handler);
    allowed.push(method.toUpperCase());
    if (method === 'get') allowed.push('HEAD');
  }
  const allow = allowed.toSorted().join(', ');
  at.all((request, response) => {
    response.set('allow', allow);
    if (request.method !== 'OPTIONS') {
      throw new ApiError('method_not_allowed', `${request.method} is not possible here; these are: ${allow}`);
    }
    response.status(204).end();
  });
}
