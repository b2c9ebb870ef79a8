package admin

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/admin/protocol"
)

// Copies makes copies of the volumes of claims. Its methods are safe for concurrent use; their errors are of the classes of errdefs, and say what can be done.
type Copies interface {
	Snapshot(context.Context, protocol.SnapshotRequest) (protocol.Snapshot, error)
	Snapshots(context.Context) (protocol.Snapshots, error)
	RemoveSnapshot(ctx context.Context, name string) error
	// Restore, Import: a new claim is made with what is in a snapshot, or in an archive; an error leaves nothing.
	Restore(ctx context.Context, snapshot string, req protocol.CopyRequest) (protocol.Copied, error)
	Import(ctx context.Context, req protocol.CopyRequest, archive io.Reader) (protocol.Copied, error)
	// Export writes an archive. What was written before an error is of no use.
	Export(ctx context.Context, req protocol.ExportRequest, to io.Writer) (protocol.Exported, error)
}

// exportTime is how long who gets an archive may take for each piece of it.
const exportTime = 10 * time.Minute

func (s *Server) copies() (Copies, error) {
	if s.cfg.Copies == nil {
		return nil, refuse(errdefs.ErrNotImplemented, "this process makes no volumes: ask one that 'monopod up' runs")
	}
	return s.cfg.Copies, nil
}

func claimOf(q url.Values) protocol.Claim {
	return protocol.Claim{Namespace: q.Get(protocol.NamespaceParam), Claim: q.Get(protocol.ClaimParam)}
}

// inUse is a parameter that is true or false.
func inUse(q url.Values) (bool, error) {
	switch v := q.Get(protocol.InUseParam); v {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	default:
		return false, refuse(errdefs.ErrInvalidArgument, "%s is %q: use true or false", protocol.InUseParam, v)
	}
}

// asked calls what needs no body and answers with one value.
func asked[T any](s *Server, do func(context.Context, Copies, url.Values) (T, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		c, err := s.copies()
		if err != nil {
			return err
		}
		v, err := do(r.Context(), c, r.URL.Query())
		if err != nil {
			return err
		}
		_ = answer(w, http.StatusOK, v) // a client that has gone hears nothing
		return nil
	}
}

func (s *Server) snapshotRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+protocol.SnapshotsPath, s.edge(asked(s, func(ctx context.Context, c Copies, _ url.Values) (protocol.Snapshots, error) {
		ctx, cancel := context.WithTimeout(ctx, statusTime)
		defer cancel()
		return c.Snapshots(ctx)
	})))
	mux.HandleFunc("POST "+protocol.SnapshotsPath, s.edge(asked(s, func(ctx context.Context, c Copies, q url.Values) (protocol.Snapshot, error) {
		used, err := inUse(q)
		if err != nil {
			return protocol.Snapshot{}, err
		}
		return c.Snapshot(ctx, protocol.SnapshotRequest{Claim: claimOf(q), Name: q.Get(protocol.SnapshotParam), InUse: used})
	})))
	mux.HandleFunc("DELETE "+protocol.SnapshotsPath, s.edge(asked(s, func(ctx context.Context, c Copies, q url.Values) (struct{}, error) {
		return struct{}{}, c.RemoveSnapshot(ctx, q.Get(protocol.SnapshotParam))
	})))
	mux.HandleFunc("POST "+protocol.RestorePath, s.edge(asked(s, func(ctx context.Context, c Copies, q url.Values) (protocol.Copied, error) {
		return c.Restore(ctx, q.Get(protocol.SnapshotParam), copyOf(q))
	})))
	mux.HandleFunc("GET "+protocol.ExportPath, s.edge(s.export))
	mux.HandleFunc("POST "+protocol.ImportPath, s.taken(s.imports))
}

func copyOf(q url.Values) protocol.CopyRequest {
	return protocol.CopyRequest{Claim: claimOf(q), Class: q.Get(protocol.ClassParam), Size: q.Get(protocol.SizeParam)}
}

// imports reads the archive that is the request's body.
func (s *Server) imports(w http.ResponseWriter, r *http.Request) error {
	c, err := s.copies()
	if err != nil {
		return err
	}
	made, err := c.Import(r.Context(), copyOf(r.URL.Query()), r.Body)
	if err != nil {
		return err
	}
	_ = answer(w, http.StatusOK, made) // a client that has gone hears nothing
	return nil
}

// export sends an archive, and says in a trailer whether all of it has come.
func (s *Server) export(w http.ResponseWriter, r *http.Request) error {
	c, err := s.copies()
	if err != nil {
		return err
	}
	q := r.URL.Query()
	used, err := inUse(q)
	if err != nil {
		return err
	}
	out := &sending{w: w, control: http.NewResponseController(w)}
	done, err := c.Export(r.Context(), protocol.ExportRequest{Claim: claimOf(q), Snapshot: q.Get(protocol.SnapshotParam), InUse: used}, out)
	if err != nil && !out.begun {
		return err
	}
	trailer, v := protocol.ResultTrailer, any(done)
	if err != nil {
		trailer, v = protocol.ErrorTrailer, protocol.Error{Message: err.Error()}
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil // without a trailer it is cut short
	}
	w.Header().Set(trailer, string(raw))
	return nil
}

// sending is an answer that begins with the first bytes that there are.
type sending struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

func (s *sending) Write(p []byte) (int, error) {
	_ = s.control.SetWriteDeadline(time.Now().Add(exportTime)) // every connection of ours has deadlines
	if !s.begun {
		s.begun = true
		h := s.w.Header()
		h.Set("Content-Type", "application/x-tar")
		h.Add("Trailer", protocol.ResultTrailer)
		h.Add("Trailer", protocol.ErrorTrailer)
		s.w.WriteHeader(http.StatusOK)
	}
	return s.w.Write(p)
}
