import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;

public class Main {
    public static void main(String[] arguments) throws Exception {
        String rest = @CODE@;
        System.getenv().forEach((name, value) -> { if (!name.isEmpty()) System.getProperties().putIfAbsent(name, value); });
        System.setProperty("user.dir", @CWD@);
        System.setOut(new PrintStream(new FileOutputStream(FileDescriptor.out), true));
        String value = null;
        try (JShell shell = JShell.builder().executionEngine("local").build()) {
            for (String name : new String[] {"io", "math", "nio.file", "util", "util.function", "util.stream"}) shell.eval("import java." + name + ".*;");
            while (!rest.isBlank()) {
                SourceCodeAnalysis.CompletionInfo next = shell.sourceCodeAnalysis().analyzeCompletion(rest);
                String source = next.completeness().isComplete() ? next.source() : rest;
                rest = next.completeness().isComplete() ? next.remaining() : "";
                value = null;
                for (SnippetEvent event : shell.eval(source)) value = result(shell, event, value);
            }
        }
        String directory = System.getenv("AGENT_DISPLAY_DIR");
        if (value != null && !value.isEmpty() && directory != null)
            Files.writeString(Path.of(directory, "value.bundle.json"), "{\"is_main\":true,\"data\":{\"text/plain\":" + json(value) + "}}");
        System.exit(0);
    }

    static String result(JShell shell, SnippetEvent event, String before) {
        Snippet snippet = event.snippet();
        if (event.status() == Snippet.Status.REJECTED) {
            shell.diagnostics(snippet).map(diagnostic -> diagnostic.getMessage(Locale.ROOT)).forEach(System.err::println);
            System.err.println(snippet.source());
            System.exit(1);
        }
        if (event.exception() instanceof EvalException thrown) {
            System.err.println(thrown.getExceptionClassName() + (thrown.getMessage() == null ? "" : ": " + thrown.getMessage()));
            for (StackTraceElement at : thrown.getStackTrace()) System.err.println("\tat " + at);
            System.exit(1);
        }
        boolean isValue = snippet.kind() == Snippet.Kind.EXPRESSION || snippet.subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND;
        return event.causeSnippet() == null && isValue ? event.value() : before;
    }

    static String json(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') quoted.append('\\').append(c);
            else if (c < ' ') quoted.append(String.format("\\u%04x", (int) c));
            else quoted.append(c);
        }
        return quoted.append('"').toString();
    }
}
