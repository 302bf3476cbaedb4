import { isoTime } from '../../core/text.ts';
import type { Feature } from '../feature.ts';
import { notifySignIns } from './notify-sign-ins.ts';
import { signInPart } from './request-sign-ins.ts';

/** How long it is remembered that a user has declined to sign in to an MCP server. */
const KEPT_MS = 24 * 3_600_000;

export const SIGN_IN: Feature = {
  modelCallPart: ({ signIns }) => signInPart(signIns),
  sweep: async (sources, { now }) => {
    await notifySignIns(sources);
    await sources.catalog.mcpSignIns.forget(isoTime(now.getTime() - KEPT_MS));
  },
};
