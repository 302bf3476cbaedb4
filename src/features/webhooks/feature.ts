import type { Feature } from '../feature.ts';

export const WEBHOOKS: Feature = { tablesOfSessions: ['delivery_lanes', 'deliveries'] };
