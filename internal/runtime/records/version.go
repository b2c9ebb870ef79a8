package records

import (
	"encoding/json"
	"errors"
	"fmt"

	"monopod.dev/monopod/internal/state"
)

// VersionError says that a record was written by a newer program, in a format that this one does not know. What cannot be read whole is not
// to be written again: what the newer program has put into it would be lost.
type VersionError struct {
	// Version is the record's, Newest the newest that this program knows.
	Version, Newest int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the record has version %d, this program knows versions up to %d: use a newer monopod", e.Version, e.Newest)
}

// CheckVersion looks at the version of a record before the rest of it is decoded: its member "version", 1 where there is none, as records had
// none at first. A newer one than newest is a *VersionError.
func CheckVersion(raw []byte, newest int) error {
	v := struct {
		Version *int `json:"version"`
	}{}
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	switch {
	case v.Version == nil:
		return nil
	case *v.Version < 1:
		return fmt.Errorf("the record has version %d, the first one is 1", *v.Version)
	case *v.Version > newest:
		return &VersionError{Version: *v.Version, Newest: newest}
	}
	return nil
}

// newer are the keys of the records that an error is about because they are of a newer version, by that of a table's List or of ReadCopies.
func newer(err error) (keys []string) {
	switch e := err.(type) { //nolint:errorlint // a joined error is taken apart here
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			keys = append(keys, newer(err)...)
		}
	case *state.UndecodableError:
		if errors.As(e.Err, new(*VersionError)) {
			keys = append(keys, e.Key)
		}
	case *copyError:
		if errors.As(e.err, new(*VersionError)) {
			keys = append(keys, e.id)
		}
	}
	return keys
}
