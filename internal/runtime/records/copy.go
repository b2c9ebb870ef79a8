package records

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"monopod.dev/monopod/internal/kit/volatilefile"
)

// copyName is the file of a record's copy.
const copyName = "record.json"

// WriteCopy writes a record into the folder of what it describes, whose life the copy shares. The table is the law; the copy is
// what a running object is known by when the table has lost it. It belongs to this boot, so that it is not synced; a reader
// sees the old one or the new one.
func WriteCopy(dir string, rec any) error {
	return volatilefile.Write(filepath.Join(dir, copyName), rec)
}

// copyError says that the copy in the folder of an id cannot be read.
type copyError struct {
	id, path string
	err      error
}

func (e *copyError) Error() string { return fmt.Sprintf("copy of a record %s: %v", e.path, e.err) }
func (e *copyError) Unwrap() error { return e.err }

// ReadCopies reads the copies in the folders of dir, by the folders' names. A folder without one is left out; of one that cannot
// be read the error tells (see Unread.With).
func ReadCopies[T any](dir string) (map[string]T, error) {
	found := map[string]T{}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return found, err
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name(), copyName)
		var rec T
		err := volatilefile.Read(path, &rec)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, &copyError{id: e.Name(), path: path, err: err})
			continue
		}
		found[e.Name()] = rec
	}
	return found, errors.Join(errs...)
}

// Digest tells messages apart: equal ones have the same.
func Digest(m proto.Message) string {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return err.Error() // an invalid message, such as one with a string that is not UTF-8, is not stored anyway
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}
