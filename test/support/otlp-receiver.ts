import { json } from 'node:stream/consumers';
import { z } from 'zod';
import { listen } from '../../src/demo/local-server.ts';

const attribute = z.object({
  key: z.string(),
  value: z.looseObject({
    stringValue: z.string().optional(),
    intValue: z.union([z.string(), z.number()]).optional(),
    doubleValue: z.number().optional(),
    boolValue: z.boolean().optional(),
  }),
});

const exported = z.object({
  resourceSpans: z.array(
    z.object({
      resource: z.object({ attributes: z.array(attribute) }),
      scopeSpans: z.array(
        z.object({
          spans: z.array(
            z.object({
              traceId: z.string().regex(/^[\da-f]{32}$/),
              spanId: z.string().regex(/^[\da-f]{16}$/),
              parentSpanId: z.string().optional(),
              name: z.string(),
              kind: z.number(),
              startTimeUnixNano: z.union([z.string(), z.object({ low: z.number(), high: z.number() })]),
              endTimeUnixNano: z.union([z.string(), z.object({ low: z.number(), high: z.number() })]),
              attributes: z.array(attribute),
              links: z.array(z.object({ traceId: z.string(), spanId: z.string() })),
              status: z.object({ code: z.number() }),
            }),
          ),
        }),
      ),
    }),
  ),
});

type Exported = z.infer<typeof exported>['resourceSpans'][number]['scopeSpans'][number]['spans'][number];

export interface SeenSpan extends Omit<Exported, 'attributes'> {
  attributes: Record<string, unknown>;
  /** The attributes of the resource, which is the exporting process. */
  service: string;
}

/** Receives traces as a collector does: OTLP over HTTP, as JSON. */
export class OtlpReceiver {
  readonly spans: SeenSpan[] = [];
  /** The request body as received. */
  text = '';
  readonly url: string;
  readonly stop: () => Promise<void>;

  private constructor(url: string, stop: () => Promise<void>) {
    this.url = url;
    this.stop = stop;
  }

  static async start(): Promise<OtlpReceiver> {
    const holder: { receiver?: OtlpReceiver } = {};
    const { url, stop } = await listen((request, response) => {
      json(request)
        .then((body) => {
          holder.receiver?.take(request.url ?? '', body);
          response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
        })
        .catch((error: unknown) => response.writeHead(400).end(String(error)));
    }, '');
    holder.receiver = new OtlpReceiver(url, stop);
    return holder.receiver;
  }

  take(path: string, body: unknown): void {
    if (path !== '/v1/traces') throw new Error(`traces were sent to ${path}`);
    this.text += JSON.stringify(body);
    for (const { resource, scopeSpans } of exported.parse(body).resourceSpans) {
      const service = String(valuesOf(resource.attributes)['service.name']);
      for (const { spans } of scopeSpans) {
        for (const span of spans) this.spans.push({ ...span, attributes: valuesOf(span.attributes), service });
      }
    }
  }

  /** The spans of a trace, each with the name of its parent: `name < parent`. */
  tree(traceId: string): string[] {
    const spans = this.spans.filter((span) => span.traceId === traceId);
    const names = new Map(spans.map(({ spanId, name }) => [spanId, name]));
    return spans
      .map(({ name, parentSpanId }) => `${name} < ${parentSpanId ? (names.get(parentSpanId) ?? '?') : '-'}`)
      .toSorted();
  }
}

function valuesOf(attributes: z.infer<typeof attribute>[]): Record<string, unknown> {
  return Object.fromEntries(
    attributes.map(({ key, value }) => {
      const { stringValue, intValue, doubleValue, boolValue } = value;
      return [
        key,
        stringValue ?? (intValue === undefined ? undefined : Number(intValue)) ?? doubleValue ?? boolValue ?? value,
      ];
    }),
  );
}
