import { CODE_EVENTS } from './code/events.ts';

/** The events of features by type: the names of their schemas, and the fields of the data of a `FeatureEvent`. */
export const FEATURE_EVENTS = { ...CODE_EVENTS };

export type FeatureEventType = keyof typeof FEATURE_EVENTS;
