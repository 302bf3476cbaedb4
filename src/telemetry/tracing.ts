import packageJson from '../../package.json' with { type: 'json' };
import {
  diag,
  DiagLogLevel,
  propagation,
  ROOT_CONTEXT,
  SpanStatusCode,
  trace,
  type Context,
  type Link,
} from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { defaultResource, detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  NodeTracerProvider,
  RandomIdGenerator,
  type SpanProcessor,
  type IdGenerator,
} from '@opentelemetry/sdk-trace-node';
import type { WorkflowClientInterceptor } from '@temporalio/client';
import type { Logger } from 'pino';
import { spanIdOf, type TraceContext, type TurnSpan } from '../core/trace-context.ts';
import { commandSpans } from './command-spans.ts';
import { logContext } from './log-context.ts';
import { scopeAttributes } from './trace-propagation.ts';

/** Records traces. */
export interface Tracing {
  /** An interceptor for Temporal's client: each command is a span, and what it starts is in its trace. */
  commands: WorkflowClientInterceptor;
  /** Records the span of a turn that has ended. */
  turnEnded: (turn: TurnSpan) => void;
  /** Stops recording and sends the remaining spans. Never rejects. */
  stop: () => Promise<void>;
}

/**
 * Records traces and sends them by OTLP over HTTP, configured by the variables of OpenTelemetry. To be called once per
 * process. Spans have ids, names and numbers, but no content.
 */
export function startTracing(log: Logger): Tracing {
  const tell =
    (level: 'warn' | 'error') =>
    (message: string, ...more: unknown[]) =>
      log[level]({ more }, message);
  const silent = (): void => undefined;
  const logger = { error: tell('error'), warn: tell('warn'), info: silent, debug: silent, verbose: silent };
  diag.setLogger(logger, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
  const ids = new SpanIds(new RandomIdGenerator());
  const named = resourceFromAttributes({ 'service.name': 'everturn', 'service.version': packageJson.version });
  const provider = new NodeTracerProvider({
    idGenerator: ids,
    resource: defaultResource()
      .merge(named)
      .merge(detectResources({ detectors: [envDetector] })),
    spanProcessors: [addScope, new BatchSpanProcessor(new OTLPTraceExporter())],
  });
  provider.register();
  const tracer = provider.getTracer('everturn');
  return {
    commands: commandSpans(tracer),
    turnEnded: ({ parent, previous, turnId, sessionId, startedAt, endedAt, status }) => {
      const options = {
        startTime: startedAt,
        links: linksTo(previous),
        attributes: { ...scopeAttributes({ sessionId, turnId }), 'everturn.turn.status': status },
      };
      const span = ids.with(spanIdOf(turnId), () => tracer.startSpan('turn', options, contextOf(parent)));
      if (status === 'error') span.setStatus({ code: SpanStatusCode.ERROR });
      span.end(endedAt);
    },
    stop: () =>
      provider.shutdown().catch((error: unknown) => log.warn({ err: error }, 'the last traces could not be sent')),
  };
}

/** Adds the ids of the log context to every span. */
const addScope: SpanProcessor = {
  onStart: (span) => void span.setAttributes(scopeAttributes(logContext())),
  onEnd: () => undefined,
  forceFlush: () => Promise.resolve(),
  shutdown: () => Promise.resolve(),
};

function contextOf(carrier: TraceContext): Context {
  return propagation.extract(ROOT_CONTEXT, carrier);
}

function linksTo(previous: TraceContext | undefined): Link[] {
  const span = previous && trace.getSpanContext(contextOf(previous));
  return span ? [{ context: span }] : [];
}

/** Generates random ids, except for a span whose id is known in advance. */
class SpanIds implements IdGenerator {
  readonly #random: IdGenerator;
  #next: string | undefined;

  constructor(random: IdGenerator) {
    this.#random = random;
  }

  /** Runs `begin` and gives this id to the first span that it starts. */
  with<T>(spanId: string, begin: () => T): T {
    this.#next = spanId;
    try {
      return begin();
    } finally {
      this.#next = undefined;
    }
  }

  readonly generateTraceId = (): string => this.#random.generateTraceId();

  readonly generateSpanId = (): string => {
    const id = this.#next ?? this.#random.generateSpanId();
    this.#next = undefined;
    return id;
  };
}
