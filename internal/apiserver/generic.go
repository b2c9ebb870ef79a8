package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	genericadmission "k8s.io/apiserver/pkg/admission"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"

	"monopod.dev/monopod/internal/apiserver/openapi"
)

// shutdownGrace bounds how long requests in flight may take, and watches to be told, when the server ends.
const shutdownGrace = 2 * time.Second

// build makes the HTTP side of the server: the library's, with what is not used here left out. It is a chain, of one link.
func (s *Server) build() error {
	if err := s.use(s.pki); err != nil {
		return err
	}
	config, err := s.config()
	if err != nil {
		return err
	}
	builtin := link{"monopod", func(next genericapiserver.DelegationTarget) (*genericapiserver.GenericAPIServer, error) {
		documents, err := s.resources.tokens.Documents(func() string {
			if at := s.Advertised(); at.IsValid() {
				return "https://" + at.String()
			}
			return s.url()
		})
		if err != nil {
			return nil, err
		}
		return s.resources.serve(config.Complete(nil), next, documents)
	}}
	s.generic, err = chain(builtin)
	return err
}

// config is what the links of the chain have in common: who is asked who makes a request, whether they may, and what becomes of what they write. What the first
// link alone does, which requests come to, is in it, too: the port, the hooks, the checks of health.
func (s *Server) config() (*genericapiserver.Config, error) {
	r := s.resources
	config := genericapiserver.NewConfig(r.set.Codecs)
	config.EffectiveVersion = effectiveVersion{compatibility.DefaultBuildEffectiveVersion()}
	config.FeatureGate = utilfeature.DefaultFeatureGate
	clientCA, err := dynamiccertificates.NewStaticCAContent("client-ca", s.pki.CA)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { s.generic.Handler.ServeHTTP(w, req) })
	if config.SecureServing, err = secure(s.Access, s.listener, handler); err != nil {
		return nil, err
	}
	config.Authentication.Authenticator = s.listener.Authenticator(authentication(clientCA.VerifyOptions, r.bearers))
	config.Authentication.APIAudiences = r.tokens.Audiences()
	config.Authorization.Authorizer = r.authorizer
	admission, err := r.admission()
	if err != nil {
		return nil, err
	}
	config.AdmissionControl = genericadmission.NewChainHandler(admission...)
	if config.AuditPolicyRuleEvaluator, config.AuditBackend, err = s.cfg.Audit.open(); err != nil {
		return nil, err
	}
	config.BuildHandlerChainFunc = func(apiHandler http.Handler, c *genericapiserver.Config) http.Handler {
		return withOrigins(genericapiserver.DefaultBuildHandlerChain(withPlainAnswers(withAppliedLists(apiHandler)), c), s.cfg.AllowedOrigins, r.set.Codecs)
	}
	namer := apiopenapi.NewDefinitionNamer(r.set.Wire)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.Definitions, namer)
	config.OpenAPIConfig.Info.Title = "Monopod"
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.Definitions, namer)
	config.OpenAPIV3Config.Info.Title = "Monopod"
	config.SkipOpenAPIInstallation = true // serve does it, lazily

	// Requests of these take as long as they take.
	config.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(
		sets.NewString("watch"), sets.NewString("attach", "exec", "log", "portforward", "proxy"))
	config.RESTOptionsGetter = r.store
	s.drained = config.DrainedNotify()
	config.ShutdownWatchTerminationGracePeriod = shutdownGrace
	config.EnableProfiling = false
	// It keeps a metric of how many requests are in flight, once a second; that nobody is idle then costs more than it tells.
	config.DisabledPostStartHooks = sets.NewString("max-in-flight-filter")
	config.StorageObjectCountTracker = nil // it serves priority and fairness, which is off
	// The library's own clients of itself (informers for plugins) are not used, but it insists on a configuration.
	config.LoopbackClientConfig = &rest.Config{Host: s.url()}
	config.AddHealthChecks(healthz.NamedCheck("etcd", s.checkStore))
	config.AddReadyzChecks(healthz.NamedCheck("startup", s.checkStarted))
	return config, config.AddPostStartHook("monopod-serving", func(genericapiserver.PostStartHookContext) error {
		close(s.serving)
		return nil
	})
}

// serve makes the server of the resources, and of the documents at some paths. It closes the storages at its end.
func (r *resources) serve(
	config genericapiserver.CompletedConfig, next genericapiserver.DelegationTarget, documents map[string]http.Handler,
) (*genericapiserver.GenericAPIServer, error) {
	made, err := config.New("monopod", next)
	if err != nil {
		return nil, err
	}
	made.ShutdownTimeout = shutdownGrace
	core, groups := r.groups()
	if err := made.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, core); err != nil {
		return nil, fmt.Errorf("install the core API: %w", err)
	}
	if err := made.InstallAPIGroups(groups...); err != nil {
		return nil, fmt.Errorf("install the API groups: %w", err)
	}
	// The models for server-side apply are made; whoever asks for the documents can have the definitions made again.
	config.OpenAPIV3Config.Definitions = nil
	for _, group := range append(groups, core) {
		group.StaticOpenAPISpec = nil // what closes a group's storages refers to it
	}
	if err := openapi.Install(made.Handler.GoRestfulContainer, made.Handler.NonGoRestfulMux, config.OpenAPIConfig, config.OpenAPIV3Config); err != nil {
		return nil, fmt.Errorf("install OpenAPI: %w", err)
	}
	for path, handler := range documents {
		made.Handler.NonGoRestfulMux.Handle(path, handler)
	}
	return made, nil
}

// checkStore is healthy when etcd answers.
func (s *Server) checkStore(req *http.Request) error {
	ctx, cancel := context.WithTimeout(req.Context(), 2*time.Second)
	defer cancel()
	_, err := s.etcd.Client().Get(ctx, "/registry/health")
	return err
}

// checkStarted is ready when Ready is.
func (s *Server) checkStarted(*http.Request) error {
	select {
	case <-s.ready:
		return nil
	default:
		return errors.New("the caches are not filled yet")
	}
}

// effectiveVersion reports the version of the Kubernetes API that is served.
type effectiveVersion struct {
	basecompatibility.MutableEffectiveVersion
}

// Info implements basecompatibility.EffectiveVersion. A build that does not set the library's version by linker flags
// has a placeholder there; the version of the library's module tells as much: k8s.io/apiserver v0.X.Y is Kubernetes
// 1.X.Y's.
func (v effectiveVersion) Info() *apimachineryversion.Info {
	info := v.MutableEffectiveVersion.Info()
	if info == nil {
		return nil
	}
	info.GitVersion = fmt.Sprintf("v%s.%s.0+monopod", info.Major, info.Minor)
	info.GitCommit, info.GitTreeState, info.BuildDate = "", "", ""
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range build.Deps {
			if rest, ok := strings.CutPrefix(dep.Version, "v0."); ok && dep.Path == "k8s.io/apiserver" {
				info.GitVersion = "v1." + rest + "+monopod"
			}
		}
	}
	return info
}
