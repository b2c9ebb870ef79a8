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
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"

	"monopod.dev/monopod/internal/apiserver/authz"
	"monopod.dev/monopod/internal/apiserver/authz/node"
	"monopod.dev/monopod/internal/apiserver/authz/rbac"
	"monopod.dev/monopod/internal/apiserver/openapi"
	"monopod.dev/monopod/internal/apiserver/scheme"
)

// shutdownGrace bounds how long requests in flight may take, and watches to be told, when the server ends.
const shutdownGrace = 2 * time.Second

// build makes the HTTP side of the server: the library's, with what is not used here left out.
func (s *Server) build() error {
	bearers, err := s.bearers()
	if err != nil {
		return err
	}
	s.policy = rbac.New(s.cfg.Log)
	authorizer := authz.New(node.NewAuthorizer(reader{s}), s.policy)
	resources, err := s.list(group.NewAuthenticatedGroupAdder(bearers), authorizer)
	if err != nil {
		return err
	}
	set, err := s.open(resources)
	if err != nil {
		return err
	}

	config := genericapiserver.NewConfig(set.Codecs)
	config.EffectiveVersion = effectiveVersion{compatibility.DefaultBuildEffectiveVersion()}
	config.FeatureGate = utilfeature.DefaultFeatureGate
	clientCA, err := dynamiccertificates.NewStaticCAContent("client-ca", s.pki.CA)
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	if err := s.use(s.pki); err != nil {
		return err
	}
	if config.SecureServing, err = s.secure(); err != nil {
		return err
	}
	config.Authentication.Authenticator = s.listener.Authenticator(authentication(clientCA.VerifyOptions, bearers))
	config.Authentication.APIAudiences = s.tokens.Audiences()
	config.Authorization.Authorizer = authorizer
	config.AdmissionControl = genericadmission.NewChainHandler(s.admission(authorizer)...)
	if config.AuditPolicyRuleEvaluator, config.AuditBackend, err = s.cfg.Audit.open(); err != nil {
		return err
	}
	config.BuildHandlerChainFunc = func(apiHandler http.Handler, c *genericapiserver.Config) http.Handler {
		return withOrigins(genericapiserver.DefaultBuildHandlerChain(withPlainAnswers(withAppliedLists(apiHandler)), c), s.cfg.AllowedOrigins, set.Codecs)
	}
	namer := apiopenapi.NewDefinitionNamer(set.Wire)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.Definitions, namer)
	config.OpenAPIConfig.Info.Title = "Monopod"
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.Definitions, namer)
	config.OpenAPIV3Config.Info.Title = "Monopod"
	config.SkipOpenAPIInstallation = true // install does it, lazily

	// Requests of these take as long as they take.
	config.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(
		sets.NewString("watch"), sets.NewString("attach", "exec", "log", "portforward", "proxy"))
	config.RESTOptionsGetter = s.store
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
	if err := config.AddPostStartHook("monopod-serving", func(genericapiserver.PostStartHookContext) error {
		close(s.serving)
		return nil
	}); err != nil {
		return err
	}
	return s.install(config.Complete(nil), set)
}

// install makes the generic server of its configuration and gives it the resources.
func (s *Server) install(config genericapiserver.CompletedConfig, set *scheme.Set) (err error) {
	if s.generic, err = config.New("monopod", genericapiserver.NewEmptyDelegate()); err != nil {
		return fmt.Errorf("make the API server: %w", err)
	}
	s.generic.ShutdownTimeout = shutdownGrace
	core, groups := s.groups(set)
	if err := s.generic.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, core); err != nil {
		return fmt.Errorf("install the core API: %w", err)
	}
	if err := s.generic.InstallAPIGroups(groups...); err != nil {
		return fmt.Errorf("install the API groups: %w", err)
	}
	// The models for server-side apply are made; whoever asks for the documents can have the definitions made again.
	config.OpenAPIV3Config.Definitions = nil
	for _, group := range append(groups, core) {
		group.StaticOpenAPISpec = nil // what closes a group's storages refers to it
	}
	if err := openapi.Install(s.generic.Handler.GoRestfulContainer, s.generic.Handler.NonGoRestfulMux,
		config.OpenAPIConfig, config.OpenAPIV3Config); err != nil {
		return fmt.Errorf("install OpenAPI: %w", err)
	}
	documents, err := s.tokens.Documents(func() string {
		if at := s.Advertised(); at.IsValid() {
			return "https://" + at.String()
		}
		return s.url()
	})
	if err != nil {
		return err
	}
	for path, handler := range documents {
		s.generic.Handler.NonGoRestfulMux.Handle(path, handler)
	}
	return nil
}

// bearers authenticates bearer tokens, in the Authorization header and, for browsers, in a WebSocket's subprotocol: those of service accounts, and those
// of the token file, which are for the API server alone.
func (s *Server) bearers() (authenticator.Request, error) {
	known := []authenticator.Token{s.tokens}
	if s.cfg.TokenAuthFile != "" {
		listed, err := tokenfile.NewCSV(s.cfg.TokenAuthFile)
		if err != nil {
			return nil, fmt.Errorf("token file %s: %w; its lines are token,user,uid,\"group1,group2\"", s.cfg.TokenAuthFile, err)
		}
		known = append(known, authenticator.WrapAudienceAgnosticToken(s.tokens.Audiences(), listed))
	}
	token := tokenunion.New(known...)
	return union.New(bearertoken.New(token), websocket.NewProtocolAuthenticator(token)), nil
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
