package main

import (
	"regexp"
	"strings"
)

// phrases are phrases that occur only in the text of a license, in lower case and with single spaces.
var phrases = []struct {
	name          string
	has, butNever *regexp.Regexp
}{
	{name: "Apache-2.0", has: regexp.MustCompile(`apache license,? version 2\.0`)},
	{name: "MIT", has: regexp.MustCompile(`permission is hereby granted, free of charge, to any person obtaining a copy`)},
	{name: "ISC", has: regexp.MustCompile(`permission to use, copy, modify, and(/or)? distribute this software for any purpose with or without fee is hereby granted`)},
	{name: "MPL-2.0", has: regexp.MustCompile(`mozilla public license,? (version|v\.) 2\.0`)},
	{name: "BSD-3-Clause", has: regexp.MustCompile(`redistributions in binary form must .* (neither the name|names? of its contributors)`)},
	{name: "BSD-2-Clause", has: regexp.MustCompile(`redistributions in binary form must`), butNever: regexp.MustCompile(`neither the name|names? of its contributors`)},
}

// comment matches comment markers at the start of lines.
var comment = regexp.MustCompile(`(?m)^[ \t]*(//|#|\*)+[ \t]?`)

// identify returns the SPDX identifiers of the licenses that a text consists of.
func identify(text string) []string {
	text = strings.ToLower(strings.Join(strings.Fields(comment.ReplaceAllString(text, "")), " "))
	var names []string
	for _, p := range phrases {
		if p.has.MatchString(text) && (p.butNever == nil || !p.butNever.MatchString(text)) {
			names = append(names, p.name)
		}
	}
	return names
}
