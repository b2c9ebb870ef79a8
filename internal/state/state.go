// Package state is the one home of the durable state of the runtime, the network and the devices: typed tables of JSON
// records in one bbolt file.
//
// Format: the bucket "meta" holds the key "version" (decimal, the schema's version); every other bucket is a table,
// named by its Table, from a key (an identifier, UTF-8) to one JSON document.
//
// It guarantees:
//   - a change is on disk (synced) before the call that makes it returns;
//   - loading never writes: a file that cannot be read is reported, not repaired and not dropped, and Open with
//     SetAside moves it away under a name that tells when, so that recovery can rebuild what the executor and the
//     kernel still hold;
//   - one record that cannot be decoded spoils nobody else: List returns the good ones and an error that names it.
//
// With a full disk nothing new can begin (Room), and what is there can be changed and removed: see ballast.go.
//
// It does not cache, and it knows nothing of what the records mean.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Version is the schema version that this code writes. A file of a newer version is refused.
const Version = 1

var (
	metaBucket = []byte("meta")
	versionKey = []byte("version")
)

// DB is one open state file. All methods are safe for concurrent use.
type DB struct {
	bolt    *bolt.DB
	path    string
	ballast ballasted
}

// Config says what to open.
type Config struct {
	// Path of the file; its directory is made when it is missing.
	Path string
	// SetAside: a file that is damaged is renamed to Path.damaged-<time>, and an empty one is opened. DB.Damaged
	// then names the old file.
	SetAside bool
	// ReadOnly: nothing is made, changed or moved. A file that is not there is os.ErrNotExist.
	ReadOnly bool
	// LockTimeout bounds the wait for another process that has the file open; 0 is one second.
	LockTimeout time.Duration
}

// ErrLocked says that another process has the state file open.
var ErrLocked = errors.New("state file is in use by another process")

// Open opens the state file, and makes it when there is none. damaged is the path to which a damaged file was moved
// (only with SetAside), and else empty.
func Open(cfg Config) (db *DB, damaged string, err error) {
	if !cfg.ReadOnly {
		if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
			return nil, "", err
		}
	}
	db, err = open(cfg)
	if err == nil || cfg.ReadOnly || !cfg.SetAside || !isDamage(err) {
		return db, "", err
	}
	damaged = cfg.Path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000000000Z")
	if rerr := os.Rename(cfg.Path, damaged); rerr != nil {
		return nil, "", fmt.Errorf("%w; moving it away failed too: %w", err, rerr)
	}
	db, err = open(cfg)
	return db, damaged, err
}

func isDamage(err error) bool {
	return errors.Is(err, bolterrors.ErrInvalid) || errors.Is(err, bolterrors.ErrChecksum) ||
		errors.Is(err, bolterrors.ErrVersionMismatch) || errors.Is(err, errBadVersion)
}

var errBadVersion = errors.New("the version record cannot be read")

func open(cfg Config) (*DB, error) {
	timeout := cfg.LockTimeout
	if timeout == 0 {
		timeout = time.Second
	}
	b, err := bolt.Open(cfg.Path, 0o600, &bolt.Options{Timeout: timeout, FreelistType: bolt.FreelistMapType, NoFreelistSync: true, ReadOnly: cfg.ReadOnly})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%s: %w; stop that process or choose another data directory", cfg.Path, ErrLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("state file %s: %w", cfg.Path, err)
	}
	db := &DB{bolt: b, path: cfg.Path}
	if err := db.checkVersion(); err != nil {
		b.Close()
		return nil, fmt.Errorf("state file %s: %w", cfg.Path, err)
	}
	if !cfg.ReadOnly {
		if err := db.bolt.View(func(tx *bolt.Tx) error { db.keepAhead(tx.Size()); return nil }); err != nil {
			b.Close()
			return nil, fmt.Errorf("state file %s: %w", cfg.Path, err)
		}
	}
	return db, nil
}

func (db *DB) checkVersion() error {
	var found []byte
	if err := db.bolt.View(func(tx *bolt.Tx) error {
		if b := tx.Bucket(metaBucket); b != nil {
			found = append(found, b.Get(versionKey)...)
		}
		return nil
	}); err != nil {
		return err
	}
	if found == nil && db.bolt.IsReadOnly() {
		return nil // begun, and not more
	}
	if found == nil {
		return db.bolt.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(metaBucket)
			if err != nil {
				return err
			}
			return b.Put(versionKey, []byte(strconv.Itoa(Version)))
		})
	}
	v, err := strconv.Atoi(string(found))
	if err != nil {
		return fmt.Errorf("%w: %q", errBadVersion, found)
	}
	if v > Version {
		return fmt.Errorf("it has schema version %d, this program knows versions up to %d: use a newer monopod", v, Version)
	}
	return nil
}

// Close closes the file.
func (db *DB) Close() error { return db.bolt.Close() }

// Path returns the file's path.
func (db *DB) Path() string { return db.path }

// Tx is one atomic change, or one consistent view, of several tables.
type Tx struct{ tx *bolt.Tx }

// Update runs f in a read-write transaction: all that f changes becomes durable together, or nothing when f returns an
// error. f must not call methods of DB or Table that open a transaction of their own.
func (db *DB) Update(f func(*Tx) error) error {
	var used int64
	err := db.bolt.Update(func(tx *bolt.Tx) error {
		err := f(&Tx{tx})
		used = tx.Size()
		return err
	})
	if used > 0 { // else there was no transaction
		db.keepAhead(used)
	}
	return err
}

// View runs f in a read-only transaction.
func (db *DB) View(f func(*Tx) error) error {
	return db.bolt.View(func(tx *bolt.Tx) error { return f(&Tx{tx}) })
}

// Table is a table of records of type T. Its zero value is not usable: see NewTable.
type Table[T any] struct {
	db   *DB
	name []byte
}

// NewTable names a table of db. The table comes into being with its first record.
func NewTable[T any](db *DB, name string) Table[T] { return Table[T]{db: db, name: []byte(name)} }

// Get returns the record under key, or an error that is errdefs.ErrNotFound.
func (t Table[T]) Get(key string) (rec T, err error) {
	err = t.db.View(func(tx *Tx) error { rec, err = t.GetTx(tx, key); return err })
	return rec, err
}

// Put stores the record under key, new or not.
func (t Table[T]) Put(key string, rec T) error {
	return t.db.Update(func(tx *Tx) error { return t.PutTx(tx, key, rec) })
}

// Modify replaces the record under key by what f makes of it. f may return an error to change nothing.
func (t Table[T]) Modify(key string, f func(*T) error) (rec T, err error) {
	err = t.db.Update(func(tx *Tx) error {
		var err error
		if rec, err = t.GetTx(tx, key); err != nil {
			return err
		}
		if err = f(&rec); err != nil {
			return err
		}
		return t.PutTx(tx, key, rec)
	})
	return rec, err
}

// Delete removes the record under key; one that is not there is no error.
func (t Table[T]) Delete(key string) error {
	return t.db.Update(func(tx *Tx) error { return t.DeleteTx(tx, key) })
}

// List returns all records by key. When some cannot be decoded, the others are returned together with an error that
// names each of the bad ones (see Undecodable).
func (t Table[T]) List() (recs map[string]T, err error) {
	verr := t.db.View(func(tx *Tx) error { recs, err = t.ListTx(tx); return nil })
	return recs, errors.Join(verr, err)
}

// GetTx is Get inside a transaction.
func (t Table[T]) GetTx(tx *Tx, key string) (rec T, err error) {
	var raw []byte
	if b := tx.tx.Bucket(t.name); b != nil {
		raw = b.Get([]byte(key))
	}
	if raw == nil {
		return rec, fmt.Errorf("%s %q: %w", t.name, key, errdefs.ErrNotFound)
	}
	if err := json.Unmarshal(raw, &rec); err != nil {
		return rec, fmt.Errorf("%s %q in %s: %w", t.name, key, t.db.path, err)
	}
	return rec, nil
}

// PutTx is Put inside a transaction.
func (t Table[T]) PutTx(tx *Tx, key string, rec T) error {
	raw, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("%s %q: %w", t.name, key, err)
	}
	b, err := tx.tx.CreateBucketIfNotExists(t.name)
	if err != nil {
		return err
	}
	return b.Put([]byte(key), raw)
}

// DeleteTx is Delete inside a transaction.
func (t Table[T]) DeleteTx(tx *Tx, key string) error {
	b := tx.tx.Bucket(t.name)
	if b == nil {
		return nil
	}
	return b.Delete([]byte(key))
}

// ListTx is List inside a transaction.
func (t Table[T]) ListTx(tx *Tx) (map[string]T, error) {
	recs := map[string]T{}
	b := tx.tx.Bucket(t.name)
	if b == nil {
		return recs, nil
	}
	var bad []error
	err := b.ForEach(func(k, raw []byte) error {
		var rec T
		if err := json.Unmarshal(raw, &rec); err != nil {
			bad = append(bad, &UndecodableError{Table: string(t.name), Key: string(k), Path: t.db.path, Err: err})
			return nil
		}
		recs[string(k)] = rec
		return nil
	})
	return recs, errors.Join(err, errors.Join(bad...))
}

// UndecodableError says that one record cannot be decoded.
type UndecodableError struct {
	Table, Key string
	// Path is the state file's.
	Path string
	Err  error
}

func (e *UndecodableError) Error() string {
	return fmt.Sprintf("%s %q in %s: %v", e.Table, e.Key, e.Path, e.Err)
}

// Unwrap returns the decoder's error.
func (e *UndecodableError) Unwrap() error { return e.Err }

// Undecodable lists the keys of the records that an error of List is about. all is true when it is about nothing else: then every other
// record of the table was read.
func Undecodable(err error) (keys []string, all bool) {
	if err == nil {
		return nil, true
	}
	if bad, ok := err.(*UndecodableError); ok { //nolint:errorlint // a joined error is taken apart here
		return []string{bad.Key}, true
	}
	joined, ok := err.(interface{ Unwrap() []error }) // as above
	if !ok {
		return nil, false
	}
	all = true
	for _, e := range joined.Unwrap() {
		k, only := Undecodable(e)
		keys, all = append(keys, k...), all && only
	}
	return keys, all
}
