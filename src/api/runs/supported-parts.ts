import { isImage } from '../../core/files.ts';
import { audioFormat, audioType, type AudioFormat } from '../../core/audio-formats.ts';
import type { AcceptedMedia } from '../../engine/agent-check.ts';
import { refusal, type FieldPath } from './errors.ts';
import type { Capability } from './wire/agent-params.ts';
import type { InputPart, Medium, Source } from './wire/parts.ts';

/** What all models of an agent take. */
export interface AcceptedInput extends AcceptedMedia {
  /** The capabilities that they lack according to the request. */
  missing: ReadonlySet<Capability>;
}

/** The origin of a part: a user, a model, or a tool's result. */
type Author = 'user' | 'model' | 'result';

/**
 * Checks that a model accepts a part. The searches of a provider and citations are neither sent to the model nor
 * refused: the text of the message has what was found. A tool's files other than images are described to the model.
 * @throws ApiError `unsupported_part`
 */
export function requireSupported(
  part: InputPart,
  fieldPath: FieldPath,
  { author, accepted }: { author: Author; accepted: AcceptedInput },
): void {
  const problem = problemOf(part, author, accepted);
  if (problem !== undefined) throw refusal('unsupported_part', fieldPath, problem);
  if (part.type !== 'source') return;
  for (const [i, one] of part.content.entries())
    requireSupported(one, [...fieldPath, 'content', i], { author, accepted });
}

function problemOf(
  part: InputPart,
  author: Author,
  { audioTypes, ownImages, missing }: AcceptedInput,
): string | undefined {
  switch (part.type) {
    case 'text':
    case 'source': // a line of text names it
      return author === 'user' ? withheld('text_input', missing) : undefined;
    case 'image':
      if (author === 'model' && !ownImages) return NO_OWN_IMAGES;
      return withheld('image_input', missing) ?? (author === 'result' ? undefined : imageProblem(part.mime_type));
    case 'audio':
      if (author === 'model') return part.transcript ? undefined : NO_TRANSCRIPT;
      if (author === 'result') return undefined;
      return withheld('audio_input', missing) ?? audioProblem(part.format, audioTypes);
    case 'reasoning':
    case 'tool-call':
    case 'tool-result':
      return undefined;
  }
}

const NO_OWN_IMAGES =
  'not all models of this agent take images that a model has made: leave it out, or send it as a user';

const NO_TRANSCRIPT =
  'models are given the transcript of what a model has said, and this audio has none: add it, or leave it out';

function withheld(capability: Capability, missing: ReadonlySet<Capability>): string | undefined {
  return missing.has(capability) ? `the request says that its model has no ${capability}` : undefined;
}

function imageProblem(mimeType: string): string | undefined {
  return isImage({ mimeType }) ? undefined : `models accept PNG, JPEG, GIF and WebP images, not ${mimeType}`;
}

function audioProblem(format: AudioFormat, types: ReadonlySet<string>): string | undefined {
  if (types.has(audioType(format))) return undefined;
  const formats = [...types].map(audioFormat).join(' or ');
  return formats
    ? `the models of this agent accept audio as ${formats}, not as ${format}`
    : 'not all models of this agent accept audio: send a transcript as text, or use another model';
}

/** A source in the form for a model: a line that names it, then its content. */
export function sourceContent({ source, title, content }: Source): Medium[] {
  return [{ type: 'text', text: `Source: ${title} (${source})` }, ...content];
}
