import type { Feature } from '../feature.ts';
import { fileTextsPart } from './read-files.ts';

export const FILES: Feature = { modelCallPart: ({ files }) => fileTextsPart(files) };
