// Package docs checks what documents say against the tree.
package docs
