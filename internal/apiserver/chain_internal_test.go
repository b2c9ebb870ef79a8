package apiserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/apiserver/scheme"
)

// answers is a link that knows one path, at which it answers with its name.
func answers(t *testing.T, name string) link {
	t.Helper()
	set, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	return link{name, func(next genericapiserver.DelegationTarget) (*genericapiserver.GenericAPIServer, error) {
		config := genericapiserver.NewConfig(set.Codecs)
		config.EffectiveVersion, config.FeatureGate = compatibility.DefaultBuildEffectiveVersion(), utilfeature.DefaultFeatureGate
		config.LoopbackClientConfig, config.ExternalAddress = &rest.Config{}, "127.0.0.1:6443"
		config.SkipOpenAPIInstallation, config.StorageObjectCountTracker = true, nil
		config.BuildHandlerChainFunc = func(handler http.Handler, _ *genericapiserver.Config) http.Handler { return handler }
		made, err := config.Complete(nil).New(name, next)
		if err != nil {
			return nil, err
		}
		t.Cleanup(made.Destroy)
		made.Handler.NonGoRestfulMux.HandleFunc("/"+name, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
		return made, nil
	}}
}

// TestChain: each link answers what it knows, of those behind the first, too; what none knows is not found.
func TestChain(t *testing.T) {
	first, err := chain(answers(t, "aggregation"), answers(t, "builtin"), answers(t, "extensions"))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/aggregation": http.StatusOK, "/builtin": http.StatusOK, "/extensions": http.StatusOK, "/unknown": http.StatusNotFound,
	} {
		w := httptest.NewRecorder()
		first.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		body, _ := io.ReadAll(w.Body)
		if w.Code != want || want == http.StatusOK && "/"+string(body) != path {
			t.Errorf("%s: %d %s, want %d", path, w.Code, body, want)
		}
	}
}

// TestChainBreaks: a link that cannot be made is named, and nobody before it is made.
func TestChainBreaks(t *testing.T) {
	broken := errors.New("no")
	_, err := chain(
		link{"first", func(genericapiserver.DelegationTarget) (*genericapiserver.GenericAPIServer, error) {
			t.Error("it has nobody to hand anything to")
			return nil, nil
		}},
		link{"second", func(genericapiserver.DelegationTarget) (*genericapiserver.GenericAPIServer, error) {
			return nil, broken
		}},
	)
	if !errors.Is(err, broken) || err.Error() != "make the API server second: no" {
		t.Errorf("the error is %v", err)
	}
}
