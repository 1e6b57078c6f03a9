#!/bin/bash
# Builds what an upgrade begins with: upgrade.sh REVISION DIRECTORY. The directory gets
# image.tar, of the name ovnkube:earlier, and dist of that revision of this repository; one
# that has them already stays. Packages that make image has unpacked are used again.
set -euo pipefail
cd "$(dirname "$0")/../.."
revision=$(git rev-parse --verify "$1^{commit}") directory=$2
if [[ $(cat "$directory/revision" 2>/dev/null) == "$revision" ]]; then
	exit
fi
rm -rf "$directory"
mkdir -p "$directory"
echo "upgrade: building $(git show --no-patch --format='%h of %cs' "$revision"), $(git rev-list --count "$revision..HEAD") commits ago"
git clone --quiet --shared --no-checkout . "$directory/source"
git -C "$directory/source" checkout --quiet "$revision"
if [[ -e _output/image-root ]]; then
	cp -al _output/image-root "$directory/image-root"
fi
IMAGE=ovnkube:earlier IMAGE_ROOT=$directory/image-root make -C "$directory/source" image OUT="$directory"
mv "$directory/source/dist" "$directory/dist"
rm -rf "$directory/source" "$directory/bin"
echo "$revision" >"$directory/revision"
