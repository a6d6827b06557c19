//! The well-known providers: where they are, whose key they take, what is special about them.

use crate::listed::listed;
use crate::protocol::Protocol;
use agent_base::error::{Error, Result};

/// Facts about a provider that are known beforehand. Everything else is learned from its answers.
#[derive(Debug, PartialEq, Eq)]
pub struct Provider {
    /// The name, as `--provider` takes it.
    pub name: &'static str,
    /// The base URL; empty for [`GENERIC`]. `{NAME}` stands for an environment variable of the user's: see [`Provider::address`].
    pub base_url: &'static str,
    /// The protocol that it is asked in where none is configured.
    pub protocol: Protocol,
    /// The base URL of another protocol, where it has one of its own.
    pub other_base_urls: &'static [(Protocol, &'static str)],
    /// The header of the key, where it is not that of the protocol: `x-api-key` for Messages, `Authorization: Bearer` otherwise.
    pub key_header: Option<&'static str>,
    /// Variables that may hold the key, the first one that is set counts. Empty where no key is needed.
    pub key_variables: &'static [&'static str],
    /// The command that prints the key, where none of those is set.
    pub key_command: &'static [&'static str],
    /// Set if its key alone implies the provider. Keys that programs use for other things do not.
    pub is_implied_by_key: bool,
    /// A model to take where none is named.
    pub default_model: Option<&'static str>,
    /// The name under which the reasoning is sent back beside tool calls, where the provider wants that.
    pub reasoning_echo: Option<&'static str>,
    /// Set if it takes `stream_options`.
    pub stream_options: bool,
}

impl Provider {
    /// The context window of `model` in tokens, where it is certain.
    pub fn context_window(&self, model: &str) -> Option<u64> {
        listed(self.name, model).map(|listed| listed.context_window)
    }

    /// The base URL with what the user's environment says for its variables: the resource or the region of an account.
    ///
    /// # Errors
    /// `Config` where a variable is missing or cannot stand in an address.
    pub fn address(&self, variable: impl Fn(&str) -> Option<String>) -> Result<String> {
        let mut address = String::new();
        let mut rest = self.base_url;
        while let Some((before, name, after)) = placeholder(rest) {
            let value = variable(name).filter(|value| !value.trim().is_empty()).ok_or_else(|| {
                Error::config(format!("{} needs {name}, and it is not set", self.name))
                    .hint(format!("its address is {}; set {name} in the environment", self.base_url))
            })?;
            let value = value.trim().trim_end_matches('/');
            if !is_part_of_address(value, before.is_empty() && address.is_empty()) {
                return Err(Error::config(format!("{name} cannot stand in the address {}", self.base_url)));
            }
            address += before;
            address += value;
            rest = after;
        }
        // The host of what is in no region has no prefix.
        Ok((address + rest).replacen("://global-", "://", 1))
    }

    /// The base URL for a protocol.
    pub fn base_url_of(&self, protocol: Protocol) -> &'static str {
        let other = self.other_base_urls.iter().find(|(of, _)| *of == protocol);
        other.map_or(self.base_url, |(_, base_url)| base_url)
    }

    /// Returns whether it runs on the user's own machine and needs no key.
    pub fn is_local(&self) -> bool {
        self.base_url.starts_with("http://")
    }
}

/// The first variable of an address: what stands before it, its name, and the rest.
fn placeholder(address: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = address.split_once('{')?;
    let (name, after) = rest.split_once('}')?;
    Some((before, name, after))
}

/// At the beginning of an address the scheme and a host, elsewhere one label or segment.
fn is_part_of_address(value: &str, is_beginning: bool) -> bool {
    let value = match is_beginning {
        true => value.strip_prefix("https://").unwrap_or_default(),
        false => value,
    };
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte))
}

/// An endpoint of which nothing is known but that it is OpenAI-compatible.
pub static GENERIC: Provider = Provider {
    name: "custom",
    base_url: "",
    protocol: Protocol::Chat,
    other_base_urls: &[],
    key_header: None,
    key_variables: &[],
    key_command: &[],
    is_implied_by_key: true,
    default_model: None,
    reasoning_echo: None,
    stream_options: true,
};

/// Every provider that `--provider` knows.
pub static ALL: &[Provider] = &[
    Provider {
        name: "openai",
        base_url: "https://api.openai.com/v1",
        // Its newer models reason from one call to the next only there.
        protocol: Protocol::Responses,
        key_variables: &["OPENAI_API_KEY"],
        ..GENERIC
    },
    Provider {
        name: "novita",
        base_url: "https://api.novita.ai/openai/v1",
        key_variables: &["NOVITA_API_KEY"],
        ..GENERIC
    },
    Provider {
        name: "deepseek",
        base_url: "https://api.deepseek.com/v1",
        other_base_urls: &[(Protocol::Messages, "https://api.deepseek.com/anthropic")],
        key_variables: &["DEEPSEEK_API_KEY"],
        default_model: Some("deepseek-chat"),
        // https://api-docs.deepseek.com/guides/thinking_mode: in a run of tool calls the reasoning goes back.
        reasoning_echo: Some("reasoning_content"),
        ..GENERIC
    },
    Provider {
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        key_variables: &["OPENROUTER_API_KEY"],
        ..GENERIC
    },
    Provider {
        name: "together",
        base_url: "https://api.together.xyz/v1",
        key_variables: &["TOGETHER_API_KEY"],
        ..GENERIC
    },
    Provider {
        name: "groq",
        base_url: "https://api.groq.com/openai/v1",
        key_variables: &["GROQ_API_KEY"],
        ..GENERIC
    },
    // https://docs.claude.com/en/api/messages
    Provider {
        name: "anthropic",
        base_url: "https://api.anthropic.com/v1",
        protocol: Protocol::Messages,
        key_variables: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"],
        ..GENERIC
    },
    // https://ai.google.dev/gemini-api/docs/openai
    Provider {
        name: "gemini",
        base_url: "https://generativelanguage.googleapis.com/v1beta/openai",
        key_variables: &["GEMINI_API_KEY"],
        ..GENERIC
    },
    // https://docs.mistral.ai/api
    Provider {
        name: "mistral",
        base_url: "https://api.mistral.ai/v1",
        key_variables: &["MISTRAL_API_KEY"],
        ..GENERIC
    },
    // https://docs.x.ai/docs/api-reference
    Provider { name: "xai", base_url: "https://api.x.ai/v1", key_variables: &["XAI_API_KEY"], ..GENERIC },
    // https://platform.moonshot.ai/docs
    Provider {
        name: "moonshot",
        base_url: "https://api.moonshot.ai/v1",
        other_base_urls: &[(Protocol::Messages, "https://api.moonshot.ai/anthropic")],
        key_variables: &["MOONSHOT_API_KEY"],
        ..GENERIC
    },
    // https://docs.z.ai/api-reference
    Provider {
        name: "zai",
        base_url: "https://api.z.ai/api/paas/v4",
        other_base_urls: &[(Protocol::Messages, "https://api.z.ai/api/anthropic")],
        key_variables: &["ZAI_API_KEY"],
        ..GENERIC
    },
    // https://www.alibabacloud.com/help/en/model-studio/compatibility-of-openai-with-dashscope
    Provider {
        name: "dashscope",
        base_url: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key_variables: &["DASHSCOPE_API_KEY"],
        ..GENERIC
    },
    // https://www.minimax.io/platform
    Provider {
        name: "minimax",
        base_url: "https://api.minimax.io/v1",
        other_base_urls: &[(Protocol::Messages, "https://api.minimax.io/anthropic")],
        key_variables: &["MINIMAX_API_KEY"],
        ..GENERIC
    },
    // https://docs.fireworks.ai/tools-sdks/openai-compatibility
    Provider {
        name: "fireworks",
        base_url: "https://api.fireworks.ai/inference/v1",
        key_variables: &["FIREWORKS_API_KEY"],
        ..GENERIC
    },
    // https://inference-docs.cerebras.ai/openai
    Provider {
        name: "cerebras",
        base_url: "https://api.cerebras.ai/v1",
        key_variables: &["CEREBRAS_API_KEY"],
        ..GENERIC
    },
    // https://huggingface.co/docs/inference-providers
    Provider {
        name: "huggingface",
        base_url: "https://router.huggingface.co/v1",
        key_variables: &["HF_TOKEN"],
        ..GENERIC
    },
    // https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle: the model is the name of a deployment.
    Provider {
        name: "azure",
        base_url: "{AZURE_OPENAI_ENDPOINT}/openai/v1",
        key_header: Some("api-key"),
        key_variables: &["AZURE_OPENAI_API_KEY"],
        is_implied_by_key: false,
        ..GENERIC
    },
    // https://cloud.google.com/vertex-ai/generative-ai/docs/start/openai
    Provider {
        name: "vertex",
        base_url: "https://{GOOGLE_CLOUD_LOCATION}-aiplatform.googleapis.com/v1/projects/{GOOGLE_CLOUD_PROJECT}/locations/{GOOGLE_CLOUD_LOCATION}/endpoints/openapi",
        key_command: &["gcloud", "auth", "print-access-token"],
        is_implied_by_key: false,
        ..GENERIC
    },
    // https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html
    Provider {
        name: "bedrock",
        base_url: "https://bedrock-runtime.{AWS_REGION}.amazonaws.com/openai/v1",
        key_variables: &["AWS_BEARER_TOKEN_BEDROCK"],
        is_implied_by_key: false,
        ..GENERIC
    },
    // https://docs.github.com/github-models
    Provider {
        name: "github",
        base_url: "https://models.github.ai/inference",
        key_variables: &["GITHUB_TOKEN"],
        is_implied_by_key: false,
        ..GENERIC
    },
    Provider { name: "ollama", base_url: "http://localhost:11434/v1", ..GENERIC },
    Provider { name: "lmstudio", base_url: "http://localhost:1234/v1", ..GENERIC },
    Provider { name: "vllm", base_url: "http://localhost:8000/v1", ..GENERIC },
    Provider { name: "llamacpp", base_url: "http://localhost:8080/v1", ..GENERIC },
    // https://docs.litellm.ai/docs/proxy/quick_start
    Provider { name: "litellm", base_url: "http://localhost:4000/v1", ..GENERIC },
];

/// The variables that are read from the user's environment alone: those of addresses, and keys that imply no provider.
pub fn environment_variables() -> impl Iterator<Item = &'static str> {
    let of_address = |provider: &'static Provider| {
        let mut rest = provider.base_url;
        std::iter::from_fn(move || {
            let (_, name, after) = placeholder(rest)?;
            rest = after;
            Some(name)
        })
    };
    let keys =
        ALL.iter().filter(|provider| !provider.is_implied_by_key).flat_map(|provider| provider.key_variables);
    ALL.iter().flat_map(of_address).chain(keys.copied())
}

/// The provider called `name`.
///
/// # Errors
/// `Config` where there is none; the hint lists them.
pub fn find(name: &str) -> Result<&'static Provider> {
    ALL.iter().find(|provider| provider.name.eq_ignore_ascii_case(name.trim())).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|provider| provider.name).collect();
        Error::config(format!("there is no provider called {name:?}"))
            .hint(format!("the known ones are {}; any other is named with --base-url", names.join(", ")))
    })
}

/// The provider whose host an address names, so that `--base-url` alone gets its quirks right.
pub fn of_base_url(base_url: &str) -> &'static Provider {
    let host = |url: &str| reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let asked = host(base_url);
    let known =
        ALL.iter().filter(|provider| !provider.is_local() && placeholder(provider.base_url).is_none());
    known.into_iter().find(|provider| host(provider.base_url) == asked).unwrap_or(&GENERIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_found_by_name_and_by_address() {
        assert_eq!(find("DeepSeek").unwrap().name, "deepseek");
        assert!(find("nobody").unwrap_err().hint_text().unwrap().contains("openrouter"));
        assert_eq!(of_base_url("https://api.deepseek.com/beta").name, "deepseek");
        assert_eq!(of_base_url("http://localhost:8000/v1").name, "custom");
    }

    #[test]
    fn every_preset_is_already_normalised() {
        for provider in ALL {
            let address = provider.address(in_environment).unwrap();
            assert_eq!(crate::Endpoint::new(&address, "m").unwrap().base_url, address);
        }
    }

    fn in_environment(name: &str) -> Option<String> {
        Some(if name.ends_with("ENDPOINT") { "https://mine.example/" } else { "eu-west-1" }.to_owned())
    }

    #[test]
    fn addresses_take_the_users_variables() {
        let address =
            |provider: &str, value: &'static str| find(provider).unwrap().address(|_| Some(value.to_owned()));
        assert_eq!(address("azure", "https://mine.example/").unwrap(), "https://mine.example/openai/v1");
        let bedrock = "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1";
        assert_eq!(address("bedrock", "eu-west-1").unwrap(), bedrock);
        for (provider, value) in [
            ("azure", "http://mine.example"),
            ("azure", "https://mine.example/elsewhere"),
            ("azure", "https://user@mine.example"),
            ("bedrock", "evil.example/"),
            ("bedrock", "evil.example/x"),
            ("bedrock", "a@evil.example#"),
        ] {
            // A slash at the end is left out.
            let refused = address(provider, value);
            assert!(refused.is_err() || value == "evil.example/", "{provider} {value}");
        }
        let global = find("vertex").unwrap().address(|_| Some("global".to_owned())).unwrap();
        assert!(global.starts_with("https://aiplatform.googleapis.com/v1/projects/"), "{global}");
        let missing = find("bedrock").unwrap().address(|_| None).unwrap_err();
        assert!(missing.to_string().contains("AWS_REGION"), "{missing}");
        assert_eq!(of_base_url("no address").name, "custom");
    }

    /// Otherwise a provider's key would go to another host with another protocol.
    #[test]
    fn every_base_url_of_a_provider_is_on_one_host() {
        let host = |url: &str| reqwest::Url::parse(url).unwrap().host_str().unwrap().to_owned();
        for provider in ALL {
            for (protocol, base_url) in provider.other_base_urls {
                assert_eq!(host(base_url), host(provider.base_url), "{}", provider.name);
                assert_eq!(provider.base_url_of(*protocol), *base_url);
            }
        }
    }
}
