/**
 * The records of a turn, which make up its log. They are internal and neutral; the events that a client receives
 * (`src/api/sessions/wire/events-to-wire.ts`) and the conversation that a model receives (`transcript.ts`) are
 * projections of them.
 *
 * In a stored record a string of 1 KiB or more may be replaced by a `BlobRef`, until it is restored: see
 * `src/blobs/offload.ts`. Code that reads stored records (workflows, `Turn`) may use ids, kinds and routes,
 * never texts.
 */

import type { WithoutId } from './base.ts';
import type { ModelMessage } from './message.ts';
import type { RequiredAction, ToolDecided } from './pending.ts';
import type { ToolResponse } from './results.ts';
import type { FeatureEvent } from './sandbox.ts';
import type { AuthRequired, McpInitialized } from './servers.ts';
import type { ContextCompacted, ThreadCreated, ThreadDone } from './threads.ts';
import type { RefreshRequired, ToolkitRefreshed, TurnCreated, TurnDone, TurnPaused, UserSteered } from './turn.ts';

export type LogRecord =
  | TurnCreated
  | ModelMessage
  | ToolResponse
  | McpInitialized
  | ThreadCreated
  | ThreadDone
  | RequiredAction
  | ToolDecided
  | RefreshRequired
  | ToolkitRefreshed
  | TurnPaused
  | UserSteered
  | ContextCompacted
  | FeatureEvent
  | TurnDone;

/** A record without a position in its log, and so without an id; only a message has its id in advance. */
export type UnsequencedRecord = ModelMessage | WithoutId<Exclude<LogRecord, ModelMessage>>;

/** A record as an activity returns it. */
export type NewRecord =
  | ModelMessage
  | WithoutId<
      | ToolResponse
      | McpInitialized
      | AuthRequired
      | ThreadCreated
      | ThreadDone
      | RefreshRequired
      | ContextCompacted
      | FeatureEvent
    >;

/** A record at its position: `ordinal` counts the durable events of a turn from 1. */
export interface LogEntry {
  ordinal: number;
  record: LogRecord;
}
