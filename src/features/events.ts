import { CODE_EVENTS } from './code/events.ts';

/** The events of features, by their types: the names of their schemas, and the fields that a `FeatureEvent` has in its data. */
export const FEATURE_EVENTS = { ...CODE_EVENTS };

export type FeatureEventType = keyof typeof FEATURE_EVENTS;
