// Package docs checks the documentation against the repository.
package docs
