import type { Feature } from '../feature.ts';
import { READ_SKILL, skillsPart } from './read-skill.ts';

export const SKILLS: Feature = { tools: [READ_SKILL], modelCallPart: ({ skills }) => skillsPart(skills) };
