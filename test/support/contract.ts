import { expect } from 'vitest';
import { documentsOf } from '../../src/api/app.ts';
import type { ApiContext } from '../../src/api/http/context.ts';
import { refusals } from '../../src/api/http/openapi.ts';
import { successOf } from '../../src/api/http/route.ts';

/** Enough to build the routes; none is called. */
// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as said
const context = { keyring: { isKeyless: false } } as unknown as ApiContext;
const documented = documentsOf(context).flatMap(({ options, routes }) => {
  const errorBody = options.errors.body(options.kinds);
  return routes.flatMap((route) => (route.declaration.isUndocumented ? [] : { ...route, errorBody }));
});
const routes = documented.map((route) => ({
  ...route,
  pattern: new RegExp(`^${route.path.replaceAll('.', '\\.').replaceAll(/:\w+/g, '[^/]+').replaceAll(/\*\w+/g, '.+')}$`),
  codes: new Set([true, false].flatMap((hasKeys) => refusals(route, { hasKeys }).map(({ code }) => code))),
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
    expect(route.errorBody.safeParse(body).error, what).toBe(undefined);
    const { error, detail } = body as { error?: { code: string }; detail?: unknown };
    if (detail !== undefined) expectDetail(body, status, what);
    // A response of a server without this route, such as that of the operators' port.
    if (error && error.code !== 'not_found') expect([...route.codes], what).toContain(error.code);
    return;
  }
  const { response, noContent, existing } = route.declaration;
  const success = successOf(route.declaration);
  if (noContent && status === 204) return;
  expect(status, what).toBe(existing && status === 200 ? 200 : success);
  const content = response && 'written' in response ? response.written['application/json'] : response;
  if (content) expect(content.schema.parse(body), what).toEqual(body);
}

/** Each error of the Agents API v2 has a text, and a list of what is wrong; a used-up budget has its amounts instead. */
function expectDetail(body: unknown, status: number, what: string): void {
  const cause = expect.objectContaining({ type: expect.any(String) });
  const amounts = expect.objectContaining({ message: expect.any(String), window_end: expect.any(String) });
  const detail = status === 402 ? amounts : expect.arrayContaining([cause]);
  expect(body, what).toEqual({ message: expect.any(String), detail });
}
