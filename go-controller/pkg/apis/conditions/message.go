package conditions

import "strings"

// MaxMessage is the maximum length of the message of a condition, in bytes. The API server refuses a whole status, with everything
// else that it says, if a message in it has more than 32768 characters.
const MaxMessage = 4096

// maxNote is the maximum length of the message of an Event. The API allows 1024 bytes, and client-go puts words before the message
// of Events that it combines.
const maxNote = 960

// Cut truncates the message of a condition to a length that the API accepts.
func Cut(message string) string { return cut(message, MaxMessage) }

// CutNote truncates the message of an Event to a length that the API accepts.
func CutNote(message string) string { return cut(message, maxNote) }

// cut truncates a text, between two characters, to a number of bytes.
func cut(text string, most int) string {
	const end = "…"
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-len(end)], "") + end
	}
	return text
}
