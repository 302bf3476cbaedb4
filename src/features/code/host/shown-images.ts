import type { FileContent } from '../../../blobs/store-files.ts';
import { sizeText } from '../../../core/files.ts';
import { errorMessage } from '../../../lib/errors.ts';
import { mediaTypeOf } from '../workspace/media-type.ts';
import { longerSide } from './image-size.ts';
import type { SessionSandbox } from './session-sandbox.ts';

/** Providers scale larger images themselves, and count the tokens before. In pixels. */
const MAX_SIDE = 1_568;

/** What providers take of one image, and what of one result is sent again with each further model call. */
const MAX_IMAGE_BYTES = 3.5 * 1024 * 1024;
const MAX_ALL_BYTES = 16 * 1024 * 1024;

/** An image for a model. */
export interface ShownImage {
  mediaType: string;
  data: Buffer;
}

/** Prints for each image the scaled one, or an empty object. */
const SCALE = `
from io import BytesIO
from IPython.display import display
from PIL import Image, ImageOps

def scaled(name):
    with Image.open(name) as image:
        is_photo = image.format == "JPEG"
        image.draft("RGB", (${MAX_SIDE}, ${MAX_SIDE}))
        image = ImageOps.exif_transpose(image)
        image.thumbnail((${MAX_SIDE}, ${MAX_SIDE}))
        data = BytesIO()
        image.convert("RGB" if is_photo else "RGBA").save(data, "JPEG" if is_photo else "PNG")
    return {"image/jpeg" if is_photo else "image/png": data.getvalue()}

for number in range(COUNT):
    try:
        shown = scaled(str(number))
    except Exception:
        shown = {"application/json": {}}
    display(shown, raw=True)
`;

/**
 * Images of code as models get them: scaled to 1,568 pixels on the longer side. The images are hostile, so that they are
 * decoded behind the wall of their sandbox, and only the header of what comes back is read here.
 * @returns the images, and how many of them the model cannot be shown
 */
export async function shownImages(
  images: readonly ShownImage[],
  sandbox: Pick<SessionSandbox, 'runApart'>,
): Promise<{ images: ShownImage[]; problems: string[] }> {
  const large = images.filter((image) => !isSmall(image));
  const { scaled, problem } = await scaledImages(large, sandbox);
  const shown: ShownImage[] = [];
  const problems: string[] = problem === undefined ? [] : [`images could not be scaled: ${problem}`];
  let left = MAX_ALL_BYTES;
  for (const image of images) {
    const fitting = isSmall(image) ? image : scaled[large.indexOf(image)];
    if (!fitting || !isSmall(fitting) || fitting.data.length > Math.min(left, MAX_IMAGE_BYTES)) {
      problems.push(`an image of ${sizeText(image.data.length)} is too large for you to see, or cannot be decoded`);
      continue;
    }
    left -= fitting.data.length;
    shown.push(fitting);
  }
  return { images: shown, problems };
}

function isSmall({ data }: ShownImage): boolean {
  return (longerSide(data) ?? Infinity) <= MAX_SIDE;
}

async function scaledImages(
  images: readonly ShownImage[],
  sandbox: Pick<SessionSandbox, 'runApart'>,
): Promise<{ scaled: ShownImage[]; problem?: string }> {
  if (images.length === 0) return { scaled: [] };
  try {
    const files = images.map(({ data }) => data);
    const code = SCALE.replace('COUNT', String(images.length));
    const { displays } = await sandbox.runApart(files, code);
    return { scaled: displays.map(({ data }) => ({ mediaType: mediaTypeOf(data).mediaType, data })) };
  } catch (error) {
    return { scaled: [], problem: errorMessage(error) };
  }
}

/** Its type is that of its bytes: a provider rejects an image of another type than it claims. */
export function fileOf({ data }: ShownImage): FileContent {
  return { name: 'file', mimeType: mediaTypeOf(data).mediaType, base64: data.toString('base64') };
}
