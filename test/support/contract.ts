import { expect } from 'vitest';
import { apiRoutes } from '../../src/api/app.ts';
import type { ApiContext } from '../../src/api/http/context.ts';
import { refusals } from '../../src/api/http/openapi.ts';

/** Enough to build the routes; none is called. */
// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as said
const routes = apiRoutes({ keyring: { isKeyless: false } } as unknown as ApiContext).map((route) => ({
  ...route,
  pattern: new RegExp(`^${route.path.replaceAll('.', '\\.').replaceAll(/:\w+/g, '[^/]+')}$`),
  codes: new Set([true, false].flatMap((hasKeys) => refusals(route, { hasKeys }))),
}));

interface Exchange {
  method: string;
  /** Path and query. */
  path: string;
  status: number;
  body: unknown;
}

/** Checks a response against the declaration of its route: the status, the code of an error, each field of the body. */
export function expectDeclared({ method, path, status, body }: Exchange): void {
  const [pathname = ''] = path.split('?', 1);
  const route = routes.find((one) => one.method === method.toLowerCase() && one.pattern.test(pathname));
  if (!route) return;
  const what = `${method} ${path} ${status} ${JSON.stringify(body)?.slice(0, 500)}`;
  if (status >= 400) {
    const { code } = (body as { error: { code: string } }).error;
    // A response of a server without this route, such as that of the operators' port.
    if (code !== 'not_found') expect([...route.codes], what).toContain(code);
    return;
  }
  const { answer, noContent, status: success = answer ? 200 : 204 } = route.declaration;
  if (noContent && status === 204) return;
  expect(status, what).toBe(success);
  const content = answer && 'written' in answer ? answer.written['application/json'] : answer;
  if (content) expect(content.schema.parse(body), what).toEqual(body);
}
