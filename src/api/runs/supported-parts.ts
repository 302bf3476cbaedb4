import { isImage } from '../../core/files.ts';
import { audioFormat, audioType } from './audio-formats.ts';
import { refusal, type Place } from './errors.ts';
import type { InputPart, Medium, Source } from './wire/parts.ts';

/** What all models of an agent take. */
export interface AcceptedInput {
  /** The types of audio in messages of users. */
  audioTypes: ReadonlySet<string>;
}

/**
 * Checks that a model can be given a part of a message. The searches of a provider and citations are not given to it,
 * and not refused: the text of the answer has what was found.
 * @throws ApiError `unsupported_part`
 */
export function requireSupported(
  part: InputPart,
  place: Place,
  { author, accepted }: { author: 'user' | 'model'; accepted: AcceptedInput },
): void {
  const problem = author === 'user' ? problemOfUser(part, accepted) : problemOfModel(part);
  if (problem !== undefined) throw refusal('unsupported_part', place, problem);
  if (part.type !== 'source') return;
  for (const [i, one] of part.content.entries()) requireSupported(one, [...place, 'content', i], { author, accepted });
}

function problemOfUser(part: InputPart, { audioTypes }: AcceptedInput): string | undefined {
  if (part.type === 'image' && !isImage({ mimeType: part.mime_type })) {
    return `models accept PNG, JPEG, GIF and WebP images, not ${part.mime_type}`;
  }
  if (part.type !== 'audio' || audioTypes.has(audioType(part.format))) return undefined;
  const formats = [...audioTypes].map(audioFormat).join(' or ');
  return formats
    ? `the models of this agent accept audio as ${formats}, not as ${part.format}`
    : 'not all models of this agent accept audio: send a transcript as text, or use another model';
}

function problemOfModel(part: InputPart): string | undefined {
  if (part.type === 'image') return 'this server cannot give a model images that a model has made: leave it out';
  if (part.type !== 'audio' || part.transcript) return undefined;
  return 'models are given the transcript of what a model has said, and this audio has none: add it, or leave it out';
}

/** What a model is given of a source: a line that names it, then its content. */
export function sourceContent({ source, title, content }: Source): Medium[] {
  return [{ type: 'text', text: `Source: ${title} (${source})` }, ...content];
}
