package apiserver

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// largestApply is the most that is looked at of a patch: services are small.
const largestApply = 1 << 20

// withAppliedPorts has `kubectl apply` of services that offer one number by two protocols, as name servers do, come to what the manifest says. A strategic
// merge patch knows the ports of a service by their numbers alone: the second one of a number is merged into the first, or both go with one of them. The patch
// of `kubectl apply` has the whole manifest with it, as an annotation, and where numbers do not tell ports apart that has the word.
func withAppliedPorts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
		if !ok || info.Verb != "patch" || info.APIGroup != "" || info.Resource != "services" || info.Subresource != "" ||
			kind != string(types.StrategicMergePatchType) || req.Body == nil {
			next.ServeHTTP(w, req)
			return
		}
		patch, err := io.ReadAll(io.LimitReader(req.Body, largestApply))
		rest := io.Reader(req.Body)
		if err != nil {
			rest = failing{err}
		} else if len(patch) < largestApply {
			if whole := wholePorts(patch); whole != nil {
				patch, req.ContentLength = whole, int64(len(whole))
			}
		}
		req.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(patch), rest), req.Body}
		next.ServeHTTP(w, req)
	})
}

// failing is what is left of a body that could not be read.
type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) { return 0, f.err }

// members is an object of which most is let be as it is written.
type members map[string]json.RawMessage

// wholePorts is a patch of a service with all the ports of the manifest that it comes from, in place of a change of them that does not tell them apart. nil:
// it is to stay as it is.
func wholePorts(patch []byte) []byte {
	var all, spec members
	if json.Unmarshal(patch, &all) != nil || json.Unmarshal(all["spec"], &spec) != nil || spec["ports"] == nil {
		return nil
	}
	var meta struct {
		Annotations map[string]*string `json:"annotations"`
	}
	if json.Unmarshal(all["metadata"], &meta) != nil || meta.Annotations[corev1.LastAppliedConfigAnnotation] == nil {
		return nil
	}
	var manifest struct {
		Spec struct {
			Ports []json.RawMessage `json:"ports"`
		} `json:"spec"`
	}
	if json.Unmarshal([]byte(*meta.Annotations[corev1.LastAppliedConfigAnnotation]), &manifest) != nil || !ambiguous(spec["ports"], manifest.Spec.Ports) {
		return nil
	}
	ports, err := json.Marshal(append([]json.RawMessage{json.RawMessage(`{"$patch":"replace"}`)}, manifest.Spec.Ports...))
	if err != nil {
		return nil
	}
	spec["ports"] = ports
	delete(spec, "$setElementOrder/ports")
	if all["spec"], err = json.Marshal(spec); err != nil {
		return nil
	}
	whole, err := json.Marshal(all)
	if err != nil {
		return nil
	}
	return whole
}

// ambiguous says that a change of ports by their numbers is not one to what a manifest says: two of its ports have one number, or the number of one of them
// is taken away.
func ambiguous(change json.RawMessage, manifest []json.RawMessage) bool {
	type numbered struct {
		Port  *int64 `json:"port"`
		Patch string `json:"$patch"`
	}
	wanted := map[int64]bool{}
	twice := false
	for _, raw := range manifest {
		var p numbered
		if json.Unmarshal(raw, &p) != nil || p.Port == nil || p.Patch != "" {
			return false
		}
		twice = twice || wanted[*p.Port]
		wanted[*p.Port] = true
	}
	var changes []numbered
	if json.Unmarshal(change, &changes) != nil {
		return false
	}
	for _, p := range changes {
		if p.Patch == "delete" && p.Port != nil && wanted[*p.Port] {
			return true
		}
	}
	return twice
}
