import type { Feature } from '../feature.ts';
import { signInPart } from './request-sign-ins.ts';

export const SIGN_IN: Feature = { modelCallPart: ({ signIns }) => signInPart(signIns) };
